import { rangeLength, rangePart, rangePosition, sliceText, type Entry } from './slices'

/** A slice laid out in rows and columns. */
export interface Grid {
  rows: number
  columns: number
  /** Total number of elements; the last row of a wrapped dimension may be incomplete. */
  length: number
  /** One wrapped dimension: row labels are the start of a row, column labels the offset in it. */
  isWrapped: boolean
  rowLabel: (row: number) => string
  columnLabel: (column: number) => string
  /** Index of a cell's element in the tensor. */
  indexOf: (row: number, column: number) => number[]
  /** Row and column of an element of the tensor; null if the slice does not have it. */
  cellOf: (index: readonly number[]) => [number, number] | null
  /** A rectangle as a slice for the server, and the position of each of its cells in the response. */
  part: (rectangle: Rectangle) => { slice: string; position: (row: number, column: number) => number }
}

export interface Rectangle {
  row: number
  column: number
  rows: number
  columns: number
}

/** Elements per row of a wrapped dimension. */
export const WRAPPED = 10

/** Lay out a slice: two ranges as rows and columns, one range wrapped into rows, no range as one element. */
export function gridOf(entries: readonly Entry[]): Grid {
  const ranges = entries.filter((entry) => entry.kind === 'range')
  const [first, second] = ranges
  const texts = (parts: string[]) =>
    sliceText(entries.map((entry) => (entry.kind === 'index' ? String(entry.index) : (parts.shift() ?? ':'))))
  const indices = (positions: number[]) =>
    entries.map((entry) =>
      entry.kind === 'index' ? entry.index : entry.start + (positions.shift() ?? 0) * entry.step,
    )
  /** Return the positions in the ranges; null if the element is not in the slice. */
  const positionsOf = (index: readonly number[]): number[] | null => {
    const positions: number[] = []
    for (const [dimension, entry] of entries.entries()) {
      const at = index[dimension] ?? 0
      const position = entry.kind === 'index' ? (entry.index === at ? 0 : null) : rangePosition(entry, at)
      if (position === null) return null
      if (entry.kind === 'range') positions.push(position)
    }
    return positions
  }
  if (first && second) {
    const [rows, columns] = [rangeLength(first), rangeLength(second)]
    return {
      rows,
      columns,
      length: rows * columns,
      isWrapped: false,
      rowLabel: (row) => String(first.start + row * first.step),
      columnLabel: (column) => String(second.start + column * second.step),
      indexOf: (row, column) => indices([row, column]),
      cellOf: (index) => {
        const positions = positionsOf(index)
        return positions && [positions[0] ?? 0, positions[1] ?? 0]
      },
      part: (part) => ({
        slice: texts([rangePart(first, part.row, part.rows), rangePart(second, part.column, part.columns)]),
        position: (row, column) => (row - part.row) * part.columns + column - part.column,
      }),
    }
  }
  if (first) {
    const length = rangeLength(first)
    const columns = Math.min(length, WRAPPED)
    return {
      rows: Math.ceil(length / WRAPPED),
      columns,
      length,
      isWrapped: true,
      rowLabel: (row) => String(first.start + row * WRAPPED * first.step),
      columnLabel: (column) => `${first.step < 0 ? '-' : '+'}${Math.abs(column * first.step)}`,
      indexOf: (row, column) => indices([row * WRAPPED + column]),
      cellOf: (index) => {
        const position = positionsOf(index)?.[0]
        return position === undefined ? null : [Math.floor(position / WRAPPED), position % WRAPPED]
      },
      part: (part) => {
        const from = part.row * WRAPPED
        const count = Math.min(part.rows * WRAPPED, length - from)
        return {
          slice: texts([rangePart(first, from, count)]),
          position: (row, column) => (row - part.row) * WRAPPED + column,
        }
      },
    }
  }
  const single = {
    slice: texts([]),
    position: () => 0,
  }
  return {
    rows: 1,
    columns: 1,
    length: 1,
    isWrapped: false,
    rowLabel: () => '',
    columnLabel: () => '',
    indexOf: () => indices([]),
    cellOf: (index) => (positionsOf(index) ? [0, 0] : null),
    part: () => single,
  }
}
