import type { NumberFormat } from './formats'
import { WRAPPED, type Grid, type Rectangle } from './grid'

export const ROW = 20
/** Browsers cannot lay out elements with many more rows or columns than these. */
export const MOST_ROWS = 400_000
export const MOST_COLUMNS = 60_000
const TILE = { rows: 128, columns: 64 }
const TILE_OF_WRAPPED = 512

/** Return the tiles of a slice that cover the visible cells. */
export function tilesOf(
  grid: Grid,
  first: { row: number; column: number },
  last: { row: number; column: number },
): Rectangle[] {
  const height = grid.isWrapped ? TILE_OF_WRAPPED : TILE.rows
  const width = grid.isWrapped ? WRAPPED : TILE.columns
  const tiles: Rectangle[] = []
  for (let row = first.row - (first.row % height); row <= last.row; row += height) {
    for (let column = first.column - (first.column % width); column <= last.column; column += width) {
      tiles.push({
        row,
        column,
        rows: Math.min(height, grid.rows - row),
        columns: Math.min(width, grid.columns - column),
      })
    }
  }
  return tiles
}

const MOST_LETTERS: Record<string, number> = { '8': 4, '16': 6, '32': 11, '64': 20 }

/** Return the width in pixels of the longest text in a format; for integers, by the largest magnitude if known. */
export function columnWidth(
  { notation, digits }: NumberFormat,
  dtype: string,
  largest: number | null,
): number {
  const bits = /^u?int(\d+)/.exec(dtype)?.[1]
  let letters = digits + (notation === 'auto' ? 6 : 8)
  if (dtype === 'bool') letters = 5
  else if (bits !== undefined && notation !== 'scientific') {
    letters = largest === null ? (MOST_LETTERS[bits] ?? 20) : String(Math.ceil(largest)).length + 1
  }
  return Math.round(Math.max(48, 12 + 7.3 * letters * (dtype.startsWith('complex') ? 2 : 1)))
}
