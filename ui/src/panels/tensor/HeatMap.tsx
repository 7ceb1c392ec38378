import { Skeleton, Text, useComputedColorScheme } from '@mantine/core'
import { useElementSize } from '@mantine/hooks'
import { useEffect, useRef, useState, type KeyboardEvent, type PointerEvent } from 'react'
import { useTranslation } from 'react-i18next'
import { Failure } from '~/parts/Notice'
import { moved, type Cell } from '~/parts/gridKeys'
import { short } from '~/parts/numbers'
import { drawPicture, over, ticks, under } from './drawing'
import { exactText } from './formats'
import type { Grid } from './grid'
import { Legend } from './Legend'
import { PALETTES } from './palette'
import { useHeatMap, type ValueRequest } from './queries'
import styles from './tensor.module.css'
import { tensorTexts } from './texts'
import { useTensorViews } from './views'

const LEFT = 46
const TOP = 18
const LARGEST_CELL = { width: 72, height: 28 }
const MOST_CELLS = 512
/** Pictures are requested in multiples of this size, so that moving a border does not refetch for every pixel. */
const SIZE_STEP = 64

const LEAST_MARK = 13

interface Box {
  left: number
  top: number
  width: number
  height: number
}

/** A slice as a heat map: colours for finite values, marks for NaN and infinities; dragging a rectangle zooms in. */
export function HeatMap(props: {
  request: ValueRequest
  slice: string
  grid: Grid
  dtype: string
  /** Largest magnitude of the whole tensor, the end of the colour scale; null if it is not known. */
  largest: number | null
  /** Position of the marked element in the slice; null if it is not in it. */
  marked: Cell | null
  onOpen: (row: number, column: number) => void
  onZoom: (from: Cell, to: Cell) => void
  /** One of several side by side, with a short legend. */
  isSmall?: boolean
  /** The cell under the pointer, shared by several heat maps; undefined: not shared. */
  pointed?: { cell: Cell | null; point: (cell: Cell | null) => void }
}) {
  const { request, slice, grid } = props
  const { t } = useTranslation(tensorTexts)
  const { ref, width, height } = useElementSize()
  const scheme = useComputedColorScheme('light')
  const colours = useTensorViews((state) => state.colours)
  const canvas = useRef<HTMLCanvasElement>(null)
  const localCell = useState<Cell | null>(null)
  const [cell, setCell] = props.pointed ? [props.pointed.cell, props.pointed.point] : localCell
  const [drag, setDrag] = useState<{ from: Cell; to: Cell } | null>(null)
  // A single dimension is one row of the heat map.
  const [rows, columns] = grid.isWrapped ? [1, grid.length] : [grid.rows, grid.columns]
  const areaWidth = Math.max(0, Math.floor(width) - LEFT - 4)
  const areaHeight = Math.max(0, Math.floor(height) - TOP - 2)
  const { data, error, refetch, isPlaceholderData } = useHeatMap(
    request,
    slice,
    cellsFor(areaHeight, rows),
    cellsFor(areaWidth, columns),
  )
  const shownRows = data?.shape[0] ?? 0
  const shownColumns = data?.shape[1] ?? 0
  const cellWidth = Math.min(LARGEST_CELL.width, areaWidth / Math.max(1, shownColumns))
  const cellHeight = Math.min(LARGEST_CELL.height, areaHeight / Math.max(1, shownRows))
  const cells = data ? new Float32Array(data.data) : null
  const largest = props.largest ?? largestOf(cells)
  const palette = PALETTES[scheme]

  useEffect(() => {
    const context = canvas.current?.getContext('2d')
    if (!canvas.current || !context || !data || width === 0) return
    const ratio = window.devicePixelRatio
    canvas.current.width = Math.floor(width * ratio)
    canvas.current.height = Math.floor(height * ratio)
    context.setTransform(ratio, 0, 0, ratio, 0, 0)
    const text = (number: number) => short(number)
    const position = { left: LEFT, top: TOP, cellWidth, cellHeight, text }
    const values = new Float32Array(data.data)
    const size = { rows: shownRows, columns: shownColumns }
    drawPicture(context, {
      cells: values,
      ...size,
      largest,
      scale: colours,
      palette: PALETTES[scheme],
      ...position,
    })
  }, [data, width, height, cellWidth, cellHeight, shownRows, shownColumns, largest, colours, scheme])

  if (error && !data) return <Failure error={error} retry={() => void refetch()} />
  if (grid.length === 0) return <Text className={styles.centred}>{t('nothing')}</Text>

  const rowOf = (row: number) => under(row, shownRows, rows)
  const columnOf = (column: number) => under(column, shownColumns, columns)
  const elementAt = (position: Cell): Cell => ({
    row: rowOf(position.row).first,
    column: columnOf(position.column).first,
  })
  const lastAt = (position: Cell): Cell => {
    const [row, column] = [rowOf(position.row), columnOf(position.column)]
    return { row: row.first + row.count - 1, column: column.first + column.count - 1 }
  }
  const indexAt = ({ row, column }: Cell) =>
    grid.isWrapped ? grid.indexOf(0, column) : grid.indexOf(row, column)
  const cellUnder = (event: PointerEvent | React.MouseEvent): Cell => {
    const box = event.currentTarget.getBoundingClientRect()
    const at = (position: number, size: number, count: number) =>
      Math.max(0, Math.min(count - 1, Math.floor(position / size)))
    return {
      row: at(event.clientY - box.top - TOP, cellHeight, shownRows),
      column: at(event.clientX - box.left - LEFT, cellWidth, shownColumns),
    }
  }
  const open = (position: Cell) => {
    const element = elementAt(position)
    props.onOpen(element.row, element.column)
  }
  const zoom = (from: Cell, to: Cell) => {
    const ends = [from, to]
    const least = {
      row: Math.min(...ends.map((end) => end.row)),
      column: Math.min(...ends.map((end) => end.column)),
    }
    const most = {
      row: Math.max(...ends.map((end) => end.row)),
      column: Math.max(...ends.map((end) => end.column)),
    }
    props.onZoom(elementAt(least), lastAt(most))
  }
  const pressed = (event: KeyboardEvent) => {
    const next = moved(event, cell ?? { row: 0, column: 0 }, shownRows, shownColumns)
    if (next) {
      event.preventDefault()
      setCell(cell ? next : { row: 0, column: 0 })
    } else if (event.key === 'Enter' && cell) open(cell)
    else if (event.key === 'Escape') setDrag(null)
  }
  const boxOf = (from: Cell, to: Cell): Box => ({
    left: LEFT + Math.min(from.column, to.column) * cellWidth,
    top: TOP + Math.min(from.row, to.row) * cellHeight,
    width: (Math.abs(from.column - to.column) + 1) * cellWidth,
    height: (Math.abs(from.row - to.row) + 1) * cellHeight,
  })
  // The varying dimension of a one-dimensional slice.
  const dimension = grid.indexOf(0, 0).findIndex((index, position) => index !== grid.indexOf(0, 1)[position])
  const marked =
    props.marked && data && !isPlaceholderData
      ? {
          row: over(props.marked.row, shownRows, rows),
          column: over(props.marked.column, shownColumns, columns),
        }
      : null
  const shownCell = cell ?? marked
  const number = shownCell ? cells?.[shownCell.row * shownColumns + shownCell.column] : undefined
  return (
    <div className="fill">
      <div
        ref={ref}
        className={styles.picture}
        role="application"
        tabIndex={0}
        aria-label={t('heatMapLabel', { slice, rows, columns })}
        aria-busy={isPlaceholderData}
        data-testid="heat-map"
        onKeyDown={pressed}
        onDoubleClick={(event) => open(cellUnder(event))}
        onPointerDown={(event) => {
          if (event.button !== 0 || !data) return
          event.currentTarget.setPointerCapture(event.pointerId)
          const at = cellUnder(event)
          setCell(at)
          setDrag({ from: at, to: at })
        }}
        onPointerMove={(event) => {
          if (!data) return
          const at = cellUnder(event)
          if (cell?.row !== at.row || cell.column !== at.column) setCell(at)
          if (drag) setDrag({ from: drag.from, to: at })
        }}
        onPointerLeave={() => {
          if (!drag) setCell(null)
        }}
        onPointerUp={() => {
          if (drag && (drag.from.row !== drag.to.row || drag.from.column !== drag.to.column)) {
            zoom(drag.from, drag.to)
          }
          setDrag(null)
        }}
      >
        {data ? (
          <>
            <canvas ref={canvas} aria-hidden className={styles.canvas} />
            {ticks(columns, (cellWidth * shownColumns) / columns, 56).map((column) => (
              <span
                key={column}
                className={styles.tick}
                style={{ left: LEFT + (column / columns) * cellWidth * shownColumns, top: 2 }}
              >
                {grid.isWrapped ? grid.indexOf(0, column)[dimension] : grid.columnLabel(column)}
              </span>
            ))}
            {ticks(rows, (cellHeight * shownRows) / rows, 20).map((row) => (
              <span
                key={row}
                className={styles.rowTick}
                style={{
                  top: TOP + (row / rows) * cellHeight * shownRows,
                  width: LEFT - 6,
                  height: Math.max(cellHeight, 12),
                }}
              >
                {grid.isWrapped ? '' : grid.rowLabel(row)}
              </span>
            ))}
            {marked && (
              <div
                className={styles.marked}
                data-testid="marked-element"
                style={atLeast(boxOf(marked, marked), LEAST_MARK)}
              />
            )}
            {cell && <div className={styles.outline} style={boxOf(cell, cell)} />}
            {drag && <div className={styles.dragged} style={boxOf(drag.from, drag.to)} />}
          </>
        ) : (
          <Skeleton h="100%" />
        )}
      </div>
      <Legend largest={largest} palette={palette} isSmall={props.isSmall ?? false} />
      <div className={styles.bar} aria-live="polite" data-testid="element-bar">
        {shownCell && number !== undefined ? (
          <>
            <span className="mono">
              [{indexText(indexAt(elementAt(shownCell)), indexAt(lastAt(shownCell)))}] ={' '}
              <b>{exactText(props.dtype === 'bool' ? number !== 0 : number, 'float32')}</b>
            </span>
            <span className={styles.quiet}>
              {shownRows < rows || shownColumns < columns
                ? t('largest', { count: rowOf(shownCell.row).count * columnOf(shownCell.column).count })
                : /64|128/.test(props.dtype)
                  ? t('rounded')
                  : ''}
            </span>
          </>
        ) : (
          <span className={styles.quiet}>
            {shownRows < rows || shownColumns < columns
              ? t('cellOf', {
                  rows: Math.ceil(rows / Math.max(1, shownRows)),
                  columns: Math.ceil(columns / Math.max(1, shownColumns)),
                })
              : ''}{' '}
            {props.isSmall ? '' : t('zoomHint')}
          </span>
        )}
      </div>
    </div>
  )
}

function cellsFor(pixels: number, elements: number): number {
  const room = Math.min(MOST_CELLS, Math.max(SIZE_STEP, Math.floor(pixels / SIZE_STEP) * SIZE_STEP))
  return pixels <= 0 ? 0 : Math.max(1, Math.min(elements, room))
}

/** Enlarge a box around its centre to a visible size. */
function atLeast({ left, top, width, height }: Box, size: number): Box {
  const [across, down] = [Math.max(width, size), Math.max(height, size)]
  return { left: left - (across - width) / 2, top: top - (down - height) / 2, width: across, height: down }
}

function largestOf(cells: Float32Array | null): number {
  let largest = 0
  for (const number of cells ?? []) if (Number.isFinite(number)) largest = Math.max(largest, Math.abs(number))
  return largest
}

/** Format the index of a cell in the tensor; `first…last` if it represents several elements. */
function indexText(first: number[], last: number[]): string {
  return first
    .map((index, dimension) =>
      index === last[dimension] ? String(index) : `${index}…${last[dimension] ?? ''}`,
    )
    .join(', ')
}
