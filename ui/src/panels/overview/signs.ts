import type { Overview } from '~/api/types'
import { css, inkOn, PALETTES } from '~/panels/tensor/palette'
import { middleOf, type Geometry } from './geometry'
import { INKS } from './inks'
import { HIT, INFINITE, NAN, type Theme } from './scale'

/** Minimum size of cells that have room for a sign. */
const ROOM_FOR_SIGN = 9

/** Draw signs for non-finite values and hits above the cells. */
export function drawMarks(
  canvas: CanvasRenderingContext2D,
  data: Overview,
  geometry: Geometry,
  theme: Theme,
): void {
  const { cellWidth, cellHeight } = geometry
  const hasRoom = cellWidth >= ROOM_FOR_SIGN && cellHeight >= ROOM_FOR_SIGN
  // If cells are small, only the first of a row of marked cells has a sign, and signs keep a readable distance.
  const taken: { x: number; y: number }[] = []
  data.marks.forEach((marks, row) =>
    marks.forEach((mark, column) => {
      const before = column > 0 ? (marks[column - 1] ?? 0) : 0
      const { x, y } = middleOf(geometry, { row, column })
      for (const bit of [NAN, INFINITE, HIT]) {
        if (!(mark & bit) || (!hasRoom && before & bit)) continue
        if (!hasRoom && taken.some((point) => Math.hypot(point.x - x, point.y - y) < 8)) continue
        if (!hasRoom) taken.push({ x, y })
        drawSign(canvas, bit, x, y, hasRoom ? Math.min(cellWidth, cellHeight, 16) : 9, theme, hasRoom, mark)
      }
    }),
  )
}

function drawSign(
  canvas: CanvasRenderingContext2D,
  bit: number,
  x: number,
  y: number,
  size: number,
  theme: Theme,
  isOnCell: boolean,
  mark: number,
): void {
  const half = size / 2
  const palette = PALETTES[theme]
  const colour = bit === NAN ? palette.nan : palette.infinite
  const ink = INKS[theme]
  if (bit === HIT) {
    ring(canvas, x, y, Math.max(3.5, half - 1.5), ink.hit, ink.back)
    return
  }
  const reach = isOnCell ? half * 0.42 : half * 0.8
  if (!isOnCell) {
    // A disc of the cell's colour, on which the sign is always readable.
    canvas.fillStyle = css(colour)
    canvas.strokeStyle = ink.back
    canvas.lineWidth = 1
    canvas.beginPath()
    canvas.arc(x, y, half + 0.5, 0, 2 * Math.PI)
    canvas.fill()
    canvas.stroke()
  }
  // A cell has both signs if tensors or kinds share it.
  const shift =
    isOnCell && (mark & (NAN | INFINITE)) === (NAN | INFINITE) ? half * 0.5 * (bit === NAN ? -1 : 1) : 0
  sign(
    canvas,
    bit,
    x + shift,
    y,
    reach * (isOnCell ? 1 : 0.6),
    inkOn(isOnCell && mark & NAN ? palette.nan : colour),
  )
}

/** Draw ✕ for NaN or ▲ for infinite as paths, as fonts differ. */
function sign(
  canvas: CanvasRenderingContext2D,
  bit: number,
  x: number,
  y: number,
  reach: number,
  colour: string,
): void {
  canvas.beginPath()
  if (bit === NAN) {
    canvas.moveTo(x - reach, y - reach)
    canvas.lineTo(x + reach, y + reach)
    canvas.moveTo(x + reach, y - reach)
    canvas.lineTo(x - reach, y + reach)
    canvas.strokeStyle = colour
    canvas.lineWidth = Math.max(1.2, reach * 0.45)
    canvas.stroke()
  } else {
    canvas.moveTo(x, y - reach)
    canvas.lineTo(x + reach, y + reach * 0.8)
    canvas.lineTo(x - reach, y + reach * 0.8)
    canvas.closePath()
    canvas.fillStyle = colour
    canvas.fill()
  }
}

/** Draw a ring that is visible on every colour. */
export function ring(
  canvas: CanvasRenderingContext2D,
  x: number,
  y: number,
  radius: number,
  colour: string,
  halo: string,
): void {
  for (const [stroke, width] of [
    [halo, 4],
    [colour, 2],
  ] as const) {
    canvas.strokeStyle = stroke
    canvas.lineWidth = width
    canvas.beginPath()
    canvas.arc(x, y, radius, 0, 2 * Math.PI)
    canvas.stroke()
  }
}
