import { signOf } from './elements'
import { colourOf, css, inkOn, MARKS, type Palette } from './palette'

/** A heat map with its position in CSS pixels. */
export interface Picture {
  cells: Float32Array
  rows: number
  columns: number
  largest: number
  scale: 'linear' | 'logarithmic'
  palette: Palette
  left: number
  top: number
  cellWidth: number
  cellHeight: number
  /** Text of a cell, if it has room. */
  text: (number: number) => string
}

/** Minimum size of a readable mark. */
const LEAST_MARK = 7
/** Up to this many marks are drawn larger than their cells, so that a single NaN among thousands is visible. */
const MOST_LARGE_MARKS = 300
const TEXT_WIDTH = 46
const TEXT_HEIGHT = 15

export function drawPicture(context: CanvasRenderingContext2D, picture: Picture): void {
  const { rows, columns, left, top, cellWidth, cellHeight } = picture
  if (rows === 0 || columns === 0) return
  const image = paint(picture)
  context.imageSmoothingEnabled = false
  context.drawImage(image, left, top, columns * cellWidth, rows * cellHeight)
  drawMarks(context, picture)
  if (cellWidth >= TEXT_WIDTH && cellHeight >= TEXT_HEIGHT) drawTexts(context, picture)
}

function paint({ cells, rows, columns, largest, scale, palette }: Picture): HTMLCanvasElement {
  const image = document.createElement('canvas')
  image.width = columns
  image.height = rows
  const context = image.getContext('2d')
  if (!context) return image
  const pixels = context.createImageData(columns, rows)
  for (let index = 0; index < rows * columns; index += 1) {
    const [red, green, blue] = colourOf(cells[index] ?? 0, largest, scale, palette)
    pixels.data.set([red, green, blue, 255], 4 * index)
  }
  context.putImageData(pixels, 0, 0)
  return image
}

function drawMarks(context: CanvasRenderingContext2D, picture: Picture): void {
  const { cells, columns, left, top, cellWidth, cellHeight, palette } = picture
  const indices: number[] = []
  for (const [index, number] of cells.entries()) if (!Number.isFinite(number)) indices.push(index)
  const room = Math.min(cellWidth, cellHeight)
  if (room < LEAST_MARK && indices.length > MOST_LARGE_MARKS) {
    hatch(context, picture, indices)
    return
  }
  const size = Math.max(LEAST_MARK, Math.min(room, 18))
  context.font = `bold ${size}px sans-serif`
  context.textAlign = 'center'
  context.textBaseline = 'middle'
  for (const index of indices) {
    const number = cells[index] ?? NaN
    const colour = Number.isNaN(number) ? palette.nan : palette.infinite
    const x = left + ((index % columns) + 0.5) * cellWidth
    const y = top + (Math.floor(index / columns) + 0.5) * cellHeight
    if (room < LEAST_MARK) {
      context.fillStyle = css(colour)
      context.fillRect(x - LEAST_MARK / 2, y - LEAST_MARK / 2, LEAST_MARK, LEAST_MARK)
    }
    if (cellWidth >= TEXT_WIDTH && cellHeight >= TEXT_HEIGHT) continue
    context.fillStyle = inkOn(colour)
    context.fillText(MARKS[signOf(number)] ?? '', x, y + 0.5)
  }
}

/** Cover cells that are too small and too many for marks with a pattern of marks. */
function hatch(context: CanvasRenderingContext2D, picture: Picture, indices: readonly number[]): void {
  const { cells, columns, left, top, cellWidth, cellHeight, palette } = picture
  const patterns = new Map<string, CanvasPattern | null>()
  for (const index of indices) {
    const number = cells[index] ?? NaN
    const mark = MARKS[signOf(number)] ?? ''
    if (!patterns.has(mark)) {
      const ink = inkOn(Number.isNaN(number) ? palette.nan : palette.infinite)
      patterns.set(mark, context.createPattern(tile(mark, ink), 'repeat'))
    }
    const [x, y] = [left + (index % columns) * cellWidth, top + Math.floor(index / columns) * cellHeight]
    context.fillStyle = patterns.get(mark) ?? 'transparent'
    context.fillRect(x, y, cellWidth, cellHeight)
  }
}

function tile(mark: string, ink: string): HTMLCanvasElement {
  const canvas = document.createElement('canvas')
  canvas.width = canvas.height = 14
  const context = canvas.getContext('2d')
  if (context) {
    context.fillStyle = ink
    context.font = 'bold 9px sans-serif'
    context.textAlign = 'center'
    context.textBaseline = 'middle'
    context.fillText(mark, 7, 7)
  }
  return canvas
}

function drawTexts(context: CanvasRenderingContext2D, picture: Picture): void {
  const { cells, columns, left, top, cellWidth, cellHeight, largest, scale, palette } = picture
  context.font = '11px ui-monospace, "DejaVu Sans Mono", monospace'
  context.textAlign = 'center'
  context.textBaseline = 'middle'
  for (const [index, number] of cells.entries()) {
    const mark = MARKS[signOf(number)]
    context.fillStyle = inkOn(colourOf(number, largest, scale, palette))
    const x = left + ((index % columns) + 0.5) * cellWidth
    const y = top + (Math.floor(index / columns) + 0.5) * cellHeight
    context.fillText(
      mark ? `${mark} ${picture.text(number)}` : picture.text(number),
      x,
      y + 0.5,
      cellWidth - 4,
    )
  }
}

/** Return the labelled elements of an axis: round numbers, at least `room` pixels apart. */
export function ticks(elements: number, elementSize: number, room: number): number[] {
  if (elements === 0 || !(elementSize > 0)) return []
  const least = Math.max(1, room / elementSize)
  const decade = 10 ** Math.floor(Math.log10(least))
  const step = [1, 2, 5, 10].map((factor) => factor * decade).find((size) => size >= least) ?? 10 * decade
  return Array.from({ length: Math.ceil(elements / step) }, (_, index) => index * step)
}

/** Return the cell that contains an element; the inverse of `under`. */
export function over(element: number, cells: number, length: number): number {
  return Math.ceil(((element + 1) * cells) / length) - 1
}

/** Return the first element of a cell and the number of its elements, divided as the server does. */
export function under(cell: number, cells: number, length: number): { first: number; count: number } {
  const first = Math.floor((cell * length) / cells)
  return { first, count: Math.floor(((cell + 1) * length) / cells) - first }
}
