import { SegmentedControl, Skeleton, useComputedColorScheme } from '@mantine/core'
import { useElementSize } from '@mantine/hooks'
import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useRef, useState, type KeyboardEvent, type MouseEvent } from 'react'
import { useTranslation } from 'react-i18next'
import { moved, type Cell } from '~/parts/gridKeys'
import { count, short } from '~/parts/numbers'
import { useView } from '~/state/store'
import { drawPicture, over, under } from './drawing'
import { exactText } from './formats'
import { PALETTES } from './palette'
import { elementQuery, useSliceMap, type ValueRequest } from './queries'
import { sliceText, type Entry } from './slices'
import styles from './tensor.module.css'
import { tensorTexts } from './texts'
import { useTensorViews } from './views'

const MOST_CELLS = 128
const LARGEST_CELL = { width: 26, height: 14 }
const MOST_HEIGHT = 132
const MARGIN = 4

/** A map of all slices along the indexed dimensions, one cell each: shows which contain NaN or large numbers. */
export function SliceMap(props: {
  request: ValueRequest
  shape: readonly number[]
  entries: readonly Entry[]
  texts: readonly string[]
  onGo: (index: readonly number[]) => void
}) {
  const { request, shape, entries, texts, onGo } = props
  const { t } = useTranslation(tensorTexts)
  const run = useView((view) => view.run)
  const client = useQueryClient()
  const scheme = useComputedColorScheme('light')
  const colours = useTensorViews((state) => state.colours)
  const { ref, width } = useElementSize()
  const canvas = useRef<HTMLCanvasElement>(null)
  const [chosen, setChosen] = useState<'odd' | 'size' | null>(null)
  const [pointed, setPointed] = useState<Cell | null>(null)

  const leading = entries.flatMap((entry, dimension) => (entry.kind === 'index' ? [dimension] : []))
  const lengths = leading.map((dimension) => shape[dimension] ?? 1)
  const across = lengths.at(-1) ?? 1
  const down = lengths.slice(0, -1).reduce((product, length) => product * length, 1)
  // The map is the same for every slice.
  const asMap = sliceText(texts.map((text, dimension) => (leading.includes(dimension) ? '0' : text)))
  const [mostRows, mostColumns] = [Math.min(down, MOST_CELLS), Math.min(across, MOST_CELLS)]
  const { data, error } = useSliceMap(request, asMap, mostRows, mostColumns)
  const planes = data ? planesOf(data.data, mostRows * mostColumns) : null
  const mode = chosen ?? (planes?.nonFinite.some((number) => number > 0) ? 'odd' : 'size')

  const cellWidth = Math.min(LARGEST_CELL.width, (width - 2 * MARGIN) / mostColumns)
  const cellHeight = Math.min(LARGEST_CELL.height, (MOST_HEIGHT - 2 * MARGIN) / mostRows)
  const height = 2 * MARGIN + mostRows * cellHeight
  const raw = data?.data
  useEffect(() => {
    const context = canvas.current?.getContext('2d')
    if (!canvas.current || !context || !raw || width === 0) return
    const ratio = window.devicePixelRatio
    canvas.current.width = Math.floor(width * ratio)
    canvas.current.height = Math.floor(height * ratio)
    context.setTransform(ratio, 0, 0, ratio, 0, 0)
    const { extreme, nonFinite } = planesOf(raw, mostRows * mostColumns)
    const values = mode === 'odd' ? nonFinite : extreme
    const palette = PALETTES[scheme]
    drawPicture(context, {
      cells: Float32Array.from(values),
      rows: mostRows,
      columns: mostColumns,
      largest: values.reduce(
        (most, value) => (Number.isFinite(value) ? Math.max(most, Math.abs(value)) : most),
        0,
      ),
      scale: mode === 'odd' ? 'logarithmic' : colours,
      palette: mode === 'odd' ? { ...palette, positive: palette.nan } : palette,
      left: MARGIN,
      top: MARGIN,
      cellWidth,
      cellHeight,
      text: short,
    })
  }, [raw, width, height, mostRows, mostColumns, cellWidth, cellHeight, mode, colours, scheme])

  const numberOf = (index: readonly number[]) =>
    leading.reduce((number, dimension) => number * (shape[dimension] ?? 1) + (index[dimension] ?? 0), 0)
  const shownNumber = numberOf(entries.map((entry) => (entry.kind === 'index' ? entry.index : 0)))
  const shown = {
    row: over(Math.floor(shownNumber / across), mostRows, down),
    column: over(shownNumber % across, mostColumns, across),
  }
  /** Return the texts of the slice with a number in C order. */
  const sliceOf = (number: number) => {
    const sliceTexts = [...texts]
    let rest = number
    for (const dimension of leading.toReversed()) {
      const length = shape[dimension] ?? 1
      sliceTexts[dimension] = String(rest % length)
      rest = Math.floor(rest / length)
    }
    return sliceTexts
  }
  const indexOf = ({ row, column }: Cell) => row * mostColumns + column
  const go = (cell: Cell) => {
    const number = planes?.number[indexOf(cell)]
    if (number === undefined) return
    const target = sliceOf(number)
    const otherwise = target.map((text, dimension) => {
      const entry = entries[dimension]
      return entry?.kind === 'range' ? entry.start : Number(text)
    })
    client
      .query(elementQuery(run, request, 'first', sliceText(target)))
      .then(({ index }) => onGo(index ?? otherwise))
      .catch(() => onGo(otherwise))
  }
  const cellUnder = (event: MouseEvent): Cell => {
    const box = event.currentTarget.getBoundingClientRect()
    const at = (position: number, size: number, cells: number) =>
      Math.max(0, Math.min(cells - 1, Math.floor((position - MARGIN) / size)))
    return {
      row: at(event.clientY - box.top, cellHeight, mostRows),
      column: at(event.clientX - box.left, cellWidth, mostColumns),
    }
  }
  const pressed = (event: KeyboardEvent) => {
    const from = pointed ?? shown
    const next = moved(event, from, mostRows, mostColumns)
    if (next) {
      event.preventDefault()
      setPointed(next)
    } else if (event.key === 'Enter') go(from)
  }
  const boxOf = ({ row, column }: Cell) => ({
    left: MARGIN + column * cellWidth - 1,
    top: MARGIN + row * cellHeight - 1,
    width: cellWidth + 2,
    height: cellHeight + 2,
  })
  const cell = pointed ?? shown
  const slices = under(cell.row, mostRows, down).count * under(cell.column, mostColumns, across).count
  const number = pointed ? planes?.number[indexOf(cell)] : shownNumber
  return (
    <section className={styles.sliceMap} aria-label={t('slices.title')} data-testid="slice-map">
      <h3>
        {t('slices.title')}
        <SegmentedControl
          className={styles.segments ?? ''}
          aria-label={t('slices.colours')}
          value={mode}
          onChange={(value) => setChosen(value === 'odd' ? 'odd' : 'size')}
          data={[
            { value: 'odd', label: t('slices.byOdd') },
            { value: 'size', label: t('slices.bySize') },
          ]}
        />
      </h3>
      <div
        ref={ref}
        className={styles.sliceCells}
        style={{ height }}
        role="application"
        tabIndex={0}
        aria-label={t('slices.label', { count: down * across })}
        onKeyDown={pressed}
        onMouseMove={(event) => setPointed(cellUnder(event))}
        onMouseLeave={() => setPointed(null)}
        onBlur={() => setPointed(null)}
        onClick={(event) => go(cellUnder(event))}
      >
        {planes ? (
          <>
            <canvas ref={canvas} aria-hidden className={styles.canvas} />
            <div
              className={styles.sliceFrame}
              style={{
                left: MARGIN,
                top: MARGIN,
                width: mostColumns * cellWidth,
                height: mostRows * cellHeight,
              }}
            />
            <div className={styles.marked} style={boxOf(shown)} />
            {pointed && <div className={styles.outline} style={boxOf(pointed)} />}
          </>
        ) : (
          !error && <Skeleton h="100%" />
        )}
      </div>
      <div className={styles.sliceWords} aria-live="polite" data-testid="slice-words">
        {error ? (
          <span className={styles.problem}>{error.message}</span>
        ) : planes ? (
          <>
            <span className="mono">{sliceText(sliceOf(number ?? 0))}</span>
            {slices > 1 && <span className={styles.quiet}>{t('slices.several', { count: slices })}</span>}
            <span>
              {t('slices.odd')} <b>{count(planes.nonFinite[indexOf(cell)] ?? 0)}</b>
            </span>
            <span>
              {t('slices.extreme')}{' '}
              <b>{exactText(Math.fround(planes.extreme[indexOf(cell)] ?? 0), 'float32')}</b>
            </span>
          </>
        ) : null}
        <span className={styles.quiet}>
          {leading
            .map(
              (dimension, position) =>
                `${position < leading.length - 1 ? '↓' : '→'} ${t('dimension', { dimension })}`,
            )
            .join(' ')}
        </span>
      </div>
    </section>
  )
}

function planesOf(data: ArrayBuffer, cells: number) {
  const all = new Float64Array(data)
  return {
    extreme: all.subarray(0, cells),
    nonFinite: all.subarray(cells, 2 * cells),
    number: all.subarray(2 * cells),
  }
}
