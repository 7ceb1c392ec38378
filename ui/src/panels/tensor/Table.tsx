import { Text, useComputedColorScheme } from '@mantine/core'
import { useElementSize, useMergedRef } from '@mantine/hooks'
import { useQueries } from '@tanstack/react-query'
import { useEffect, useId, useRef, useState, type KeyboardEvent } from 'react'
import { useTranslation } from 'react-i18next'
import { Failure } from '~/parts/Notice'
import { moved } from '~/parts/gridKeys'
import { count } from '~/parts/numbers'
import { useView } from '~/state/store'
import { elementsOf, signOf, sizeOf, type Element } from './elements'
import { exactText, formatted } from './formats'
import type { Grid } from './grid'
import { colourOf, css, inkOn, PALETTES } from './palette'
import { valuesQuery, type ValueRequest } from './queries'
import styles from './tensor.module.css'
import { tensorTexts } from './texts'
import { columnWidth, MOST_COLUMNS, MOST_ROWS, ROW, tilesOf } from './tableLayout'
import { useTensorViews } from './views'

const HEADER = 22

/** The elements of a slice as text, loaded in tiles during scrolling. */
export function Table(props: {
  request: ValueRequest
  slice: string
  grid: Grid
  dtype: string
  largest: number | null
  cell: [number, number]
  onCell: (cell: [number, number]) => void
}) {
  const { request, slice, grid, cell } = props
  const { t } = useTranslation(tensorTexts)
  const run = useView((view) => view.run)
  const format = useTensorViews((state) => state.format)
  const palette = PALETTES[useComputedColorScheme('light')]
  const id = useId()
  const { ref: sized, width, height } = useElementSize()
  const box = useRef<HTMLDivElement>(null)
  const ref = useMergedRef(sized, box)
  const [scroll, setScroll] = useState({ top: 0, left: 0 })
  const [pointed, setPointed] = useState<[number, number] | null>(null)
  const rows = Math.min(grid.rows, MOST_ROWS)
  const columns = Math.min(grid.columns, MOST_COLUMNS)
  const isDifference = request.which === 'difference'
  const cellWidth = columnWidth(format, isDifference ? 'float64' : props.dtype, props.largest)
  const gutter = Math.max(44, 14 + 7.3 * grid.rowLabel(rows - 1).length)

  const first = { row: Math.floor(scroll.top / ROW), column: Math.floor(scroll.left / cellWidth) }
  const last = {
    row: Math.min(rows - 1, Math.floor((scroll.top + Math.max(height - HEADER, 0)) / ROW)),
    column: Math.min(columns - 1, Math.floor((scroll.left + Math.max(width - gutter, 0)) / cellWidth)),
  }
  const tiles = height > 0 && grid.length > 0 ? tilesOf(grid, first, last) : []
  const sides = isDifference ? (['difference', 'previous', 'current'] as const) : ([request.which] as const)
  const results = useQueries({
    queries: sides.flatMap((which) =>
      tiles.map((tile) => valuesQuery(run, { ...request, which }, grid.part(tile).slice, true)),
    ),
  })
  const pieces = results.map((result, position) => {
    const tile = tiles[position % tiles.length]
    if (!tile || !result.data) return null
    return {
      tile,
      position: grid.part(tile).position,
      elements: elementsOf(result.data.dtype, result.data.data),
    }
  })
  const elementAt = (row: number, column: number, side = 0): Element | null => {
    for (const piece of pieces.slice(side * tiles.length, (side + 1) * tiles.length)) {
      if (!piece) continue
      const { tile } = piece
      const isInside =
        row >= tile.row &&
        row < tile.row + tile.rows &&
        column >= tile.column &&
        column < tile.column + tile.columns
      if (isInside) return piece.elements.at(piece.position(row, column))
    }
    return null
  }
  const isThere = (row: number, column: number) => !grid.isWrapped || row * 10 + column < grid.length

  // Scroll to the cell when it changes, for instance by a click in the heat map.
  const [row, column] = cell
  useEffect(() => {
    if (box.current) bringIntoSight(box.current, [row, column], cellWidth, gutter)
  }, [row, column, cellWidth, gutter])

  const failed = results.find((result) => result.error)
  if (failed?.error) return <Failure error={failed.error} retry={() => void failed.refetch()} />
  if (grid.length === 0) return <Text className={styles.centred}>{t('nothing')}</Text>

  const pressed = (event: KeyboardEvent) => {
    const next = moved(event, { row, column }, rows, columns, Math.max(1, last.row - first.row - 1))
    if (!next) return
    event.preventDefault()
    if (isThere(next.row, next.column)) props.onCell([next.row, next.column])
  }
  const shownRows = Array.from(
    { length: Math.max(0, last.row - first.row + 1) },
    (_, position) => first.row + position,
  )
  const shownColumns = Array.from(
    { length: Math.max(0, last.column - first.column + 1) },
    (_, position) => first.column + position,
  )
  const isInSight = ([row, column]: [number, number]) =>
    row >= first.row && row <= last.row && column >= first.column && column <= last.column
  const inBar = pointed ?? (isInSight(cell) ? cell : null)
  const isCut = rows < grid.rows || columns < grid.columns
  return (
    <div className="fill">
      {isCut && (
        <div className={styles.cut} role="note">
          {t('cut', { rows: count(rows), columns: count(columns) })}
        </div>
      )}
      <div
        ref={ref}
        className={styles.table}
        role="grid"
        tabIndex={0}
        aria-label={t('tableLabel', { slice, rows: grid.rows, columns: grid.columns })}
        aria-rowcount={grid.rows + 1}
        aria-colcount={grid.columns + 1}
        aria-activedescendant={isInSight(cell) ? `${id}-${cell[0]}-${cell[1]}` : undefined}
        data-testid="value-table"
        onScroll={(event) =>
          setScroll({ top: event.currentTarget.scrollTop, left: event.currentTarget.scrollLeft })
        }
        onKeyDown={pressed}
        onMouseLeave={() => setPointed(null)}
      >
        <div
          className={styles.canvasOfTable}
          style={{ width: gutter + columns * cellWidth, height: HEADER + rows * ROW }}
          role="presentation"
        >
          <div className={styles.headRow} role="row" aria-rowindex={1} style={{ height: HEADER }}>
            <span
              className={styles.corner}
              role="columnheader"
              aria-colindex={1}
              aria-label={t('row')}
              style={{ width: gutter }}
            >
              {grid.isWrapped ? t('offset') : ''}
            </span>
            {shownColumns.map((column) => (
              <span
                key={column}
                className={styles.head}
                role="columnheader"
                aria-colindex={column + 2}
                style={{ left: gutter + column * cellWidth, width: cellWidth }}
              >
                {grid.columnLabel(column)}
              </span>
            ))}
          </div>
          {shownRows.map((row) => (
            <div
              key={row}
              role="row"
              aria-rowindex={row + 2}
              className={styles.row}
              style={{ top: HEADER + row * ROW }}
            >
              <span className={styles.rowHead} role="rowheader" aria-colindex={1} style={{ width: gutter }}>
                {grid.rowLabel(row)}
              </span>
              {shownColumns.map((column) => {
                if (!isThere(row, column)) return null
                const element = elementAt(row, column)
                const isActive = row === cell[0] && column === cell[1]
                return (
                  <ValueCell
                    key={column}
                    id={`${id}-${row}-${column}`}
                    element={element}
                    text={element === null ? '' : formatted(element, format)}
                    colour={
                      element === null
                        ? null
                        : colourOf(sizeOf(element), props.largest ?? 0, 'linear', palette)
                    }
                    isActive={isActive}
                    column={column}
                    left={gutter + column * cellWidth}
                    width={cellWidth}
                    onPoint={() => setPointed([row, column])}
                    onChoose={() => props.onCell([row, column])}
                  />
                )
              })}
            </div>
          ))}
        </div>
      </div>
      {inBar && isThere(...inBar) ? (
        <ElementBar
          index={grid.indexOf(...inBar)}
          element={elementAt(...inBar)}
          sides={isDifference ? [elementAt(...inBar, 1), elementAt(...inBar, 2)] : null}
          dtype={props.dtype}
        />
      ) : (
        <div className={styles.bar} data-testid="element-bar">
          <span className={styles.quiet}>{t('bar')}</span>
        </div>
      )}
    </div>
  )
}

/** Scroll to a cell: no further than needed if it is near, else so that its surroundings are visible. */
function bringIntoSight(
  view: HTMLElement,
  [row, column]: [number, number],
  cellWidth: number,
  gutter: number,
) {
  const near = (position: number, size: number, room: number, scrolled: number, before: number) => {
    const at = position * size
    const nearest = Math.max(at - room + size, Math.min(scrolled, at))
    return Math.abs(nearest - scrolled) > room ? at - before * size : nearest
  }
  view.scrollTo({
    top: near(row, ROW, view.clientHeight - HEADER, view.scrollTop, 3),
    left: near(column, cellWidth, view.clientWidth - gutter, view.scrollLeft, 2),
  })
}

function ValueCell(props: {
  id: string
  element: Element | null
  text: string
  colour: readonly [number, number, number] | null
  isActive: boolean
  column: number
  left: number
  width: number
  onPoint: () => void
  onChoose: () => void
}) {
  const { element, colour } = props
  const sign = element === null ? 'zero' : signOf(element)
  const isMarked = sign === 'nan' || sign === 'inf' || sign === '-inf'
  const style = colour && sign !== 'zero' ? { background: css(colour), color: inkOn(colour) } : {}
  return (
    <span
      id={props.id}
      role="gridcell"
      aria-colindex={props.column + 2}
      aria-selected={props.isActive}
      className={styles.cell}
      data-sign={element === null ? 'unread' : sign}
      data-active={props.isActive || undefined}
      style={{ left: props.left, width: props.width, ...style, ...(isMarked ? { fontWeight: 700 } : {}) }}
      onMouseEnter={props.onPoint}
      onMouseDown={props.onChoose}
    >
      {props.text}
    </span>
  )
}

/** The full value of an element; for a difference, with both sides. */
function ElementBar(props: {
  index: number[]
  element: Element | null
  sides: [Element | null, Element | null] | null
  dtype: string
}) {
  const { t } = useTranslation(tensorTexts)
  const { element, sides, dtype } = props
  const text = (side: Element | null | undefined) =>
    side === null || side === undefined ? t('reading') : exactText(side, dtype)
  return (
    <div className={styles.bar} aria-live="polite" data-testid="element-bar">
      <span className="mono">
        [{props.index.join(', ')}] ={' '}
        {sides ? (
          <>
            <span>{t('wasIs', { previous: text(sides[0]), current: text(sides[1]) })}</span>
            {' · '}
            <b>
              {t('change', { difference: element === null ? t('reading') : exactText(element, 'float64') })}
            </b>
          </>
        ) : (
          <b>{text(element)}</b>
        )}
      </span>
    </div>
  )
}
