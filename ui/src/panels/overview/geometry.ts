import type { Overview, StepSpan } from '~/api/types'
import type { Cell } from '~/parts/gridKeys'

/** The layout of the picture in CSS pixels. */
export interface Geometry {
  width: number
  height: number
  /** The top left corner of the cells; names are on their left, steps below. */
  left: number
  top: number
  cellWidth: number
  cellHeight: number
  rows: number
  columns: number
}

export const AXIS_HEIGHT = 34
const TOP = 14
const RIGHT = 10
const WIDEST_CELL = 96
const HIGHEST_CELL = 22
/** Size of the smallest cells that the pointer can hit. */
const LEAST_CELL = 3

/** Return the width of the names. */
export function namesWidth(width: number): number {
  return Math.round(Math.min(280, Math.max(110, width * 0.3)))
}

/** Return how many rows and columns fit, in multiples of 20, so that dragging a separator causes few requests. */
export function cellsThatFit(width: number, height: number): { rows: number; columns: number } {
  const fit = (pixels: number) => Math.min(1000, Math.max(20, 20 * Math.floor(pixels / LEAST_CELL / 20)))
  return { rows: fit(height - TOP - AXIS_HEIGHT), columns: fit(width - namesWidth(width) - RIGHT) }
}

export function geometryOf(width: number, height: number, rows: number, columns: number): Geometry {
  const left = namesWidth(width)
  return {
    width,
    height,
    left,
    top: TOP,
    rows,
    columns,
    cellWidth: Math.max(1, Math.min(WIDEST_CELL, (width - left - RIGHT) / Math.max(columns, 1))),
    cellHeight: Math.max(1, Math.min(HIGHEST_CELL, (height - TOP - AXIS_HEIGHT) / Math.max(rows, 1))),
  }
}

export function middleOf({ left, top, cellWidth, cellHeight }: Geometry, { row, column }: Cell) {
  return { x: left + (column + 0.5) * cellWidth, y: top + (row + 0.5) * cellHeight }
}

export function cellAt(geometry: Geometry, x: number, y: number): Cell | null {
  const column = Math.floor((x - geometry.left) / geometry.cellWidth)
  const row = Math.floor((y - geometry.top) / geometry.cellHeight)
  const isInside = column >= 0 && column < geometry.columns && row >= 0 && row < geometry.rows
  return isInside ? { row, column } : null
}

/** Return the nearest cell to a point, for a drag that leaves the picture. */
export function nearestCell(geometry: Geometry, x: number, y: number): Cell {
  const within = (value: number, end: number) =>
    Math.min(Math.max(0, Math.floor(value)), Math.max(end - 1, 0))
  return {
    column: within((x - geometry.left) / geometry.cellWidth, geometry.columns),
    row: within((y - geometry.top) / geometry.cellHeight, geometry.rows),
  }
}

export function columnOf(steps: readonly StepSpan[], step: number): number {
  return steps.findIndex((span) => span.first <= step && step <= span.last)
}

/** Return the columns with step labels: round numbers, as many as fit. */
export function stepTicks(steps: readonly StepSpan[], cellWidth: number, labelWidth = 44): number[] {
  const first = steps[0]?.first
  const last = steps.at(-1)?.last
  if (first === undefined || last === undefined) return []
  if (cellWidth >= labelWidth) return steps.map((_, column) => column)
  const apart = Math.max(1, Math.floor((steps.length * cellWidth) / labelWidth))
  const distance = roundDistance((last - first + 1) / apart)
  const ticks: number[] = []
  let next = Math.ceil(first / distance) * distance
  steps.forEach((span, column) => {
    if (span.last < next) return
    const before = ticks.at(-1)
    // If steps are missing, round numbers can be close together.
    if (before === undefined || (column - before) * cellWidth >= labelWidth) ticks.push(column)
    next = (Math.floor(span.last / distance) + 1) * distance
  })
  return ticks
}

/** Return the smallest of 1, 2, 5, 10, 20, 50… that is at least `least`. */
export function roundDistance(least: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)))
  return power * ([1, 2, 5, 10].find((factor) => factor * power >= least) ?? 10)
}

/** The part of the overview that the user has zoomed in on; null: everything. */
export interface Part {
  offset: number
  limit: number
  firstStep: number
  lastStep: number
}

/** Return the tensors and steps in a rectangle of cells. */
export function partBetween(data: Overview, a: Cell, b: Cell): Part | null {
  const top = Math.min(a.row, b.row)
  const bottom = Math.max(a.row, b.row)
  const first = data.steps[Math.min(a.column, b.column)]
  const last = data.steps[Math.max(a.column, b.column)]
  if (!first || !last) return null
  const count = (from: number, to: number) =>
    data.rows.slice(from, to).reduce((sum, row) => sum + row.tensors, 0)
  return {
    offset: data.offset + count(0, top),
    limit: Math.max(1, count(top, bottom + 1)),
    firstStep: first.first,
    lastStep: last.last,
  }
}

/** Return the part around a cell with half the height and half the width of what is shown. */
export function partAround(data: Overview, at: Cell): Part | null {
  const around = (position: number, amount: number) => {
    const shown = Math.max(2, Math.ceil(amount / 2))
    const first = Math.max(0, Math.min(position - Math.floor(shown / 2), amount - shown))
    return [first, Math.min(amount, first + shown) - 1] as const
  }
  const [top, bottom] = around(at.row, data.rows.length)
  const [left, right] = around(at.column, data.steps.length)
  return partBetween(data, { row: top, column: left }, { row: bottom, column: right })
}
