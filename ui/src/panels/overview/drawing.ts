import type { Overview } from '~/api/types'
import type { Cell } from '~/parts/gridKeys'
import { phasesOf, type Phase } from './beginning'
import { middleOf, stepTicks, type Geometry } from './geometry'
import { INKS, type Ink } from './inks'
import { cellColour, type Scale, type Theme } from './scale'
import { drawMarks, ring } from './signs'

const MONOSPACE = '11px ui-monospace, SFMono-Regular, "DejaVu Sans Mono", Menlo, Consolas, monospace'
const PLAIN = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans CJK SC", sans-serif'

/** Minimum distance of readable names. */
const LINE = 13
/** Width of the strip that names the phases of a step. */
const STRIP = 16

export interface Words {
  steps: string
  phases: Record<Phase, string>
}

/** Draw everything that changes only with the data or the size. */
export function drawPicture(
  canvas: CanvasRenderingContext2D,
  data: Overview,
  scale: Scale,
  geometry: Geometry,
  theme: Theme,
  words: Words,
): void {
  const ink = INKS[theme]
  canvas.clearRect(0, 0, geometry.width, geometry.height)
  drawCells(canvas, data, scale, geometry, theme)
  drawNames(canvas, data, geometry, ink, words)
  drawSteps(canvas, data, geometry, ink, words)
  drawMarks(canvas, data, geometry, theme)
}

function drawCells(
  canvas: CanvasRenderingContext2D,
  data: Overview,
  scale: Scale,
  geometry: Geometry,
  theme: Theme,
): void {
  const { left, top, cellWidth, cellHeight, rows, columns } = geometry
  if (!rows || !columns) return
  canvas.fillStyle = hatch(canvas, INKS[theme])
  canvas.fillRect(left, top, columns * cellWidth, rows * cellHeight)
  const picture = new ImageData(columns, rows)
  data.marks.forEach((marks, row) =>
    marks.forEach((mark, column) => {
      const colour = cellColour(data.values[row]?.[column] ?? null, mark, scale, theme)
      if (colour && row < rows && column < columns)
        picture.data.set([...colour, 255], 4 * (row * columns + column))
    }),
  )
  const small = new OffscreenCanvas(columns, rows)
  small.getContext('2d')?.putImageData(picture, 0, 0)
  canvas.imageSmoothingEnabled = false
  canvas.drawImage(small, left, top, columns * cellWidth, rows * cellHeight)
  if (cellWidth >= 6 && cellHeight >= 6) {
    canvas.fillStyle = INKS[theme].back
    for (let column = 1; column < columns; column += 1)
      canvas.fillRect(Math.round(left + column * cellWidth), top, 1, rows * cellHeight)
    for (let row = 1; row < rows; row += 1)
      canvas.fillRect(left, Math.round(top + row * cellHeight), columns * cellWidth, 1)
  }
}

/** Return the pattern for cells without recorded values. */
function hatch(canvas: CanvasRenderingContext2D, ink: Ink): CanvasPattern | string {
  const tile = new OffscreenCanvas(6, 6)
  const of = tile.getContext('2d')
  if (!of) return ink.faint
  of.fillStyle = ink.back
  of.fillRect(0, 0, 6, 6)
  of.strokeStyle = ink.line
  of.lineWidth = 0.8
  of.beginPath()
  for (const shift of [-6, 0, 6]) {
    of.moveTo(shift, 6)
    of.lineTo(shift + 6, 0)
  }
  of.stroke()
  return canvas.createPattern(tile, 'repeat') ?? ink.faint
}

function drawNames(
  canvas: CanvasRenderingContext2D,
  data: Overview,
  geometry: Geometry,
  ink: Ink,
  words: Words,
): void {
  const { left, top, cellHeight, cellWidth, columns } = geometry
  canvas.textBaseline = 'middle'
  for (const { phase, first, last } of phasesOf(data.rows)) {
    const begin = top + first * cellHeight
    const height = (last - first + 1) * cellHeight
    canvas.fillStyle = ink.faint
    canvas.fillRect(2, begin, STRIP - 3, Math.max(1, height - 1))
    canvas.fillStyle = ink.line
    if (first > 0) {
      // Not through the names in between, which would look struck out.
      canvas.fillRect(2, Math.round(begin), STRIP - 3, 1)
      canvas.fillRect(left, Math.round(begin), columns * cellWidth, 1)
    }
    canvas.font = PLAIN
    const name = words.phases[phase]
    if (canvas.measureText(name).width + 8 > height) continue
    canvas.save()
    canvas.translate(2 + (STRIP - 3) / 2, begin + height / 2)
    canvas.rotate(-Math.PI / 2)
    canvas.textAlign = 'center'
    canvas.fillStyle = ink.quiet
    canvas.fillText(name, 0, 0)
    canvas.restore()
  }
  canvas.font = MONOSPACE
  canvas.textAlign = 'right'
  canvas.fillStyle = ink.text
  let nextFree = -Infinity
  data.rows.forEach((row, number) => {
    const middle = top + (number + 0.5) * cellHeight
    if (middle < nextFree) return
    nextFree = middle + LINE
    canvas.fillText(fitting(canvas, shortName(row), left - STRIP - 10), left - 6, middle)
  })
}

/** Return the end of a name, which says more than its beginning. */
export function shortName({ node, io, slot }: Overview['rows'][number]): string {
  const parts = node.replace(/^(Default|Gradients|Optimizer)\/(Default\/)?/, '').split('/')
  const slotName = io === 'input' ? `:input.${slot}` : slot ? `:${slot}` : ''
  return parts.join('/') + slotName
}

function fitting(canvas: CanvasRenderingContext2D, text: string, width: number): string {
  if (canvas.measureText(text).width <= width) return text
  const amount = Math.max(3, Math.floor(width / canvas.measureText('m').width) - 1)
  return `…${text.slice(-amount)}`
}

function drawSteps(
  canvas: CanvasRenderingContext2D,
  data: Overview,
  geometry: Geometry,
  ink: Ink,
  words: Words,
): void {
  const { left, top, cellWidth, cellHeight, rows, columns } = geometry
  const bottom = top + rows * cellHeight
  canvas.font = PLAIN
  canvas.textAlign = 'center'
  canvas.textBaseline = 'top'
  for (const column of stepTicks(data.steps, cellWidth)) {
    const middle = left + (column + 0.5) * cellWidth
    canvas.fillStyle = ink.line
    canvas.fillRect(Math.round(middle), bottom + 1, 1, 4)
    canvas.fillStyle = ink.text
    canvas.fillText(String(data.steps[column]?.first ?? ''), middle, bottom + 7)
  }
  canvas.textAlign = 'right'
  canvas.fillStyle = ink.quiet
  canvas.fillText(words.steps, left - 6, bottom + 7)
  canvas.fillStyle = ink.line
  canvas.fillRect(left, Math.round(bottom), columns * cellWidth, 1)
}

/** The layer above the heat map, which changes with every pointer movement. */
export interface Over {
  /** The column of the step shown; −1: it is not in the picture. */
  shown: number
  /** Rows of the selected node. */
  chosen: number[]
  cursor: Cell | null
  beginning: Cell | null
  /** The corners of the rectangle being dragged. */
  drag: [Cell, Cell] | null
}

export function drawOver(
  canvas: CanvasRenderingContext2D,
  geometry: Geometry,
  over: Over,
  theme: Theme,
): void {
  const { width, height, left, top, cellWidth, cellHeight, rows, columns } = geometry
  const ink = INKS[theme]
  const right = left + columns * cellWidth
  const bottom = top + rows * cellHeight
  canvas.clearRect(0, 0, width, height)
  if (over.shown >= 0) {
    const x = left + over.shown * cellWidth
    frame(canvas, x - 1, top - 1, cellWidth + 2, bottom - top + 2, ink.chosen, ink.back)
    canvas.fillStyle = ink.chosen
    canvas.beginPath()
    canvas.moveTo(x + cellWidth / 2 - 6, top - 10)
    canvas.lineTo(x + cellWidth / 2 + 6, top - 10)
    canvas.lineTo(x + cellWidth / 2, top - 2)
    canvas.closePath()
    canvas.fill()
  }
  for (const row of over.chosen) {
    const y = top + row * cellHeight
    frame(canvas, left - 1, y - 1, right - left + 2, cellHeight + 2, ink.chosen, ink.back)
    canvas.fillStyle = ink.chosen
    canvas.fillRect(left - 4, y, 3, Math.max(2, cellHeight))
  }
  if (over.beginning) {
    const { x, y } = middleOf(geometry, over.beginning)
    ring(canvas, x, y, Math.max(9, Math.min(cellWidth, cellHeight) * 0.75), ink.hit, ink.back)
  }
  if (over.cursor) {
    const { x, y } = middleOf(geometry, over.cursor)
    canvas.strokeStyle = ink.text
    canvas.globalAlpha = 0.55
    canvas.lineWidth = 1
    canvas.setLineDash([3, 3])
    canvas.beginPath()
    canvas.moveTo(left, y)
    canvas.lineTo(right, y)
    canvas.moveTo(x, top)
    canvas.lineTo(x, bottom)
    canvas.stroke()
    canvas.setLineDash([])
    canvas.globalAlpha = 1
    const w = Math.max(cellWidth, 6)
    const h = Math.max(cellHeight, 6)
    frame(canvas, x - w / 2, y - h / 2, w, h, ink.text, ink.back)
  }
  if (over.drag) {
    const [from, to] = over.drag
    const x = left + Math.min(from.column, to.column) * cellWidth
    const y = top + Math.min(from.row, to.row) * cellHeight
    const w = (Math.abs(from.column - to.column) + 1) * cellWidth
    const h = (Math.abs(from.row - to.row) + 1) * cellHeight
    canvas.globalAlpha = 0.18
    canvas.fillStyle = ink.chosen
    canvas.fillRect(x, y, w, h)
    canvas.globalAlpha = 1
    frame(canvas, x, y, w, h, ink.chosen, ink.back)
  }
}

function frame(
  canvas: CanvasRenderingContext2D,
  x: number,
  y: number,
  width: number,
  height: number,
  colour: string,
  halo: string,
): void {
  canvas.lineWidth = 3
  canvas.strokeStyle = halo
  canvas.globalAlpha = 0.7
  canvas.strokeRect(x, y, width, height)
  canvas.globalAlpha = 1
  canvas.lineWidth = 1.5
  canvas.strokeStyle = colour
  canvas.strokeRect(x, y, width, height)
}
