import type { Timeline } from '~/api/types'
import { roundDistance } from '~/panels/overview/geometry'
import { INKS, type Ink } from '~/panels/overview/inks'
import { INFINITE, NAN, type Theme } from '~/panels/overview/scale'
import { gapsOf } from '~/parts/gaps'
import { digitsBetween, short } from '~/parts/numbers'

const LEFT = 62
const RIGHT = 12
const AXIS = 18
const LANE = 9
const GAP = 4
const PLAIN = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans CJK SC", sans-serif'

/** Colours of the graphs in turn; their names are shown on hover. */
const GRAPHS: Record<Theme, string[]> = {
  light: ['#adb5bd', '#868e96', '#ced4da', '#6c757d'],
  dark: ['#5c636a', '#868e96', '#464b50', '#a3a9b0'],
}
export const KEPT: Record<Theme, { values: string; statistics: string; loss: string }> = {
  light: { values: '#2b8a3e', statistics: '#b2d8bb', loss: '#1864ab' },
  dark: { values: '#69c57f', statistics: '#2e5138', loss: '#74c0fc' },
}

export interface LaneWords {
  loss: string
  hits: string
  values: string
  graphs: string
}

/** Return the width of a column in CSS pixels. */
export function widthOfColumn(width: number, columns: number): number {
  return Math.max(0.5, (width - LEFT - RIGHT) / Math.max(1, columns))
}

export function columnAt(x: number, width: number, columns: number): number {
  return Math.min(columns - 1, Math.max(0, Math.floor((x - LEFT) / widthOfColumn(width, columns))))
}

export interface Shown {
  /** Columns of the step shown, of the run's current step, and under the pointer; −1: none. */
  shown: number
  present: number
  cursor: number
}

/** Draw the whole timeline. */
export function drawTimeline(
  canvas: CanvasRenderingContext2D,
  data: Timeline,
  size: { width: number; height: number },
  at: Shown,
  theme: Theme,
  words: LaneWords,
): void {
  const { width, height } = size
  const ink = INKS[theme]
  const names = [...new Set(data.steps.map((span) => span.graph).filter(Boolean))]
  const hasGraphs = names.length > 1
  const bottom = height - AXIS
  const kept = bottom - LANE - GAP
  const graphs = hasGraphs ? kept - LANE - GAP : kept
  const hits = graphs - LANE - GAP - 2
  const per = widthOfColumn(width, data.steps.length)
  const xOf = (column: number) => LEFT + column * per
  canvas.clearRect(0, 0, width, height)
  canvas.font = PLAIN
  canvas.textBaseline = 'middle'
  mark(canvas, data, at, xOf, per, bottom, ink)

  const label = (text: string, y: number) => {
    canvas.fillStyle = ink.quiet
    canvas.textAlign = 'right'
    canvas.fillText(text, LEFT - 6, y)
  }
  label(words.values, kept + LANE / 2)
  label(words.hits, hits + LANE / 2)
  if (hasGraphs) label(words.graphs, graphs + LANE / 2)
  const end = xOf(data.steps.length)
  canvas.fillStyle = ink.faint
  canvas.fillRect(LEFT, kept, end - LEFT, LANE)
  data.steps.forEach((span, index) => {
    const x = xOf(index)
    const wide = Math.max(1, per - (per > 4 ? 1 : 0))
    if (span.values || span.statistics) {
      canvas.fillStyle = KEPT[theme][span.values ? 'values' : 'statistics']
      canvas.fillRect(x, span.values ? kept : kept + LANE / 2, wide, span.values ? LANE : LANE / 2)
    }
    if (hasGraphs && span.graph) {
      canvas.fillStyle = GRAPHS[theme][names.indexOf(span.graph) % 4] ?? ink.line
      canvas.fillRect(x, graphs, wide, LANE)
    }
  })
  canvas.fillStyle = ink.line
  canvas.fillRect(LEFT, hits + LANE, end - LEFT, 1)
  drawHits(canvas, data, xOf, per, hits, ink)
  drawLoss(canvas, data, xOf, per, { top: 6, bottom: hits - 9 }, theme, words)
  drawAxis(canvas, data, xOf, per, bottom, ink)
}

function mark(
  canvas: CanvasRenderingContext2D,
  data: Timeline,
  at: Shown,
  xOf: (column: number) => number,
  per: number,
  bottom: number,
  ink: Ink,
): void {
  const wide = Math.max(2, per)
  if (at.cursor >= 0) {
    canvas.fillStyle = ink.faint
    canvas.fillRect(xOf(at.cursor), 0, wide, bottom)
  }
  if (at.present >= 0 && at.present !== at.shown) {
    canvas.strokeStyle = ink.quiet
    canvas.lineWidth = 1
    canvas.setLineDash([3, 3])
    canvas.strokeRect(xOf(at.present) + 0.5, 0.5, wide - 1, bottom)
    canvas.setLineDash([])
  }
  if (at.shown >= 0 && data.steps.length) {
    const x = xOf(at.shown)
    canvas.fillStyle = ink.chosen
    canvas.globalAlpha = 0.14
    canvas.fillRect(x, 0, wide, bottom)
    canvas.globalAlpha = 1
    canvas.fillRect(x + wide / 2 - 0.75, 0, 1.5, bottom)
    canvas.beginPath()
    canvas.moveTo(x + wide / 2 - 5, 0)
    canvas.lineTo(x + wide / 2 + 5, 0)
    canvas.lineTo(x + wide / 2, 6)
    canvas.fill()
  }
}

/** Draw a triangle for each column with hits; if they are too close, bars. */
function drawHits(
  canvas: CanvasRenderingContext2D,
  data: Timeline,
  xOf: (column: number) => number,
  per: number,
  top: number,
  ink: Ink,
): void {
  canvas.fillStyle = ink.hit
  let last = -Infinity
  data.steps.forEach((span, index) => {
    if (!span.hits) return
    const x = xOf(index) + per / 2
    if (x - last >= 8) {
      canvas.beginPath()
      canvas.moveTo(x, top - 2)
      canvas.lineTo(x + 5, top + LANE)
      canvas.lineTo(x - 5, top + LANE)
      canvas.fill()
      last = x
    } else canvas.fillRect(xOf(index), top + LANE - 4, Math.max(1, per), 4)
  })
}

function drawLoss(
  canvas: CanvasRenderingContext2D,
  data: Timeline,
  xOf: (column: number) => number,
  per: number,
  { top, bottom }: { top: number; bottom: number },
  theme: Theme,
  words: LaneWords,
): void {
  const ink = INKS[theme]
  const losses = (data.loss?.values ?? []).filter((value): value is number => value !== null)
  canvas.textAlign = 'right'
  if (bottom - top < 16 || !data.loss) return
  const high = Math.max(...losses)
  const low = Math.min(...losses)
  const range = high - low || Math.abs(high) || 1
  const yOf = (value: number) => bottom - ((value - low) / range) * (bottom - top)
  canvas.fillStyle = ink.quiet
  if (losses.length && bottom - top > 30) {
    const digits = digitsBetween(low, high)
    canvas.fillText(short(high, digits), LEFT - 6, top + 2)
    if (low < high) canvas.fillText(short(low, digits), LEFT - 6, bottom - 2)
  }
  canvas.fillText(words.loss, LEFT - 6, (top + bottom) / 2)
  canvas.strokeStyle = KEPT[theme].loss
  canvas.lineWidth = 1.5
  canvas.lineJoin = 'round'
  canvas.beginPath()
  const points = data.loss.values.flatMap((value, index) => (value === null ? [] : [{ value, index }]))
  const isGap = gapsOf(points.map(({ index }) => index))
  points.forEach(({ value, index }, number) => {
    const x = xOf(index) + per / 2
    const before = points[number - 1]
    if (before === undefined || isGap(before.index, index)) canvas.moveTo(x, yOf(value))
    else canvas.lineTo(x, yOf(value))
  })
  canvas.stroke()
  // Between the ends of a gap nothing is known.
  canvas.setLineDash([2, 4])
  canvas.lineWidth = 1
  canvas.beginPath()
  points.forEach(({ value, index }, number) => {
    const before = points[number - 1]
    if (before === undefined || !isGap(before.index, index)) return
    canvas.moveTo(xOf(before.index) + per / 2, yOf(before.value))
    canvas.lineTo(xOf(index) + per / 2, yOf(value))
  })
  canvas.stroke()
  canvas.setLineDash([])
  canvas.fillStyle = KEPT[theme].loss
  points.forEach(({ value, index }, number) => {
    const [before, after] = [points[number - 1], points[number + 1]]
    const isAlone = (!before || isGap(before.index, index)) && (!after || isGap(index, after.index))
    if (points.length > 60 && !isAlone) return
    canvas.beginPath()
    canvas.arc(xOf(index) + per / 2, yOf(value), 2, 0, 2 * Math.PI)
    canvas.fill()
  })
  canvas.strokeStyle = ink.hit
  canvas.lineWidth = 1.6
  let last = -Infinity
  data.loss.marks.forEach((bits, index) => {
    const x = xOf(index) + per / 2
    if (!(bits & (NAN | INFINITE)) || x - last < 9) return
    last = x
    // A step without a number has no height: mark it at the top.
    canvas.beginPath()
    canvas.moveTo(x - 3, top)
    canvas.lineTo(x + 3, top + 6)
    canvas.moveTo(x + 3, top)
    canvas.lineTo(x - 3, top + 6)
    canvas.stroke()
  })
}

function drawAxis(
  canvas: CanvasRenderingContext2D,
  data: Timeline,
  xOf: (column: number) => number,
  per: number,
  bottom: number,
  ink: Ink,
): void {
  const end = xOf(data.steps.length)
  canvas.fillStyle = ink.line
  canvas.fillRect(LEFT, bottom, end - LEFT, 1)
  const steps = data.last_step - data.first_step + 1
  const distance = roundDistance(steps / Math.max(1, Math.floor((end - LEFT) / 52)))
  canvas.fillStyle = ink.text
  canvas.textAlign = 'center'
  data.steps.forEach((span, index) => {
    const round = Math.ceil(span.first / distance) * distance
    if (round > span.last) return
    const x = xOf(index) + per / 2
    canvas.fillRect(Math.round(x), bottom, 1, 3)
    canvas.fillText(String(round), x, bottom + 11)
  })
}
