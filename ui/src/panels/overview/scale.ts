import type { Overview, OverviewStatistic } from '~/api/types'
import { PALETTES, type Rgb } from '~/panels/tensor/palette'

export type Theme = 'light' | 'dark'

/** Bits of the marks of a cell, as sent by the server. */
export const NAN = 1
export const INFINITE = 2
export const HIT = 4
export const NOTHING = 8

/** The mapping of values to colours. */
export interface Scale {
  kind: 'magnitude' | 'signed' | 'percent'
  /** The values at the ends of the scale; a signed scale goes from −`high` to `high`. */
  low: number
  high: number
  /** Some values are beyond the ends, and have the colours of the ends. */
  isCut: boolean
}

const SIGNED: OverviewStatistic[] = ['max', 'min', 'mean']
const PERCENT: OverviewStatistic[] = ['zero_percent', 'negative_percent', 'non_finite_percent']

/** Return the scale of an overview: the same for every part and size of the picture. */
export function scaleOf({ statistic, scale }: Pick<Overview, 'statistic' | 'scale'>): Scale {
  if (PERCENT.includes(statistic)) return { kind: 'percent', low: 0, high: 100, isCut: false }
  const kind = SIGNED.includes(statistic) ? 'signed' : 'magnitude'
  if (!scale) return { kind, low: 0.1, high: 1, isCut: false }
  return { kind, low: scale.low, high: scale.high, isCut: scale.is_cut }
}

/** Return the position of a value on the scale: 0 to 1, or −1 to 1 on a signed scale. */
export function shareOf(value: number, { kind, low, high }: Scale): number {
  if (kind === 'percent') return Math.min(1, Math.max(0, value / 100))
  if (value === 0) return 0
  const part = Math.log(Math.abs(value) / low) / Math.log(high / low)
  // On a signed scale, the smallest value still differs from zero.
  const shown = Math.min(1, Math.max(kind === 'signed' ? 0.12 : 0, part))
  return kind === 'signed' ? Math.sign(value) * shown : shown
}

const STOPS: Record<Theme, Rgb[]> = {
  light: [
    [226, 238, 247],
    [176, 212, 232],
    [118, 178, 210],
    [63, 138, 182],
    [29, 96, 146],
    [18, 59, 102],
  ],
  dark: [
    [24, 42, 62],
    [27, 72, 104],
    [34, 110, 145],
    [62, 152, 180],
    [123, 196, 205],
    [211, 240, 229],
  ],
}

/** Colour of exactly 0 on scales without a zero. */
export const ZERO: Record<Theme, Rgb> = { light: [245, 222, 150], dark: [104, 84, 28] }

export function colourAt(share: number, kind: Scale['kind'], theme: Theme): Rgb {
  if (kind === 'signed') {
    const { zero, negative, positive } = PALETTES[theme]
    return between(zero, share < 0 ? negative : positive, Math.abs(share))
  }
  const stops = STOPS[theme]
  const position = Math.min(1, Math.max(0, share)) * (stops.length - 1)
  const before = Math.min(Math.floor(position), stops.length - 2)
  return between(stops[before] ?? [0, 0, 0], stops[before + 1] ?? [0, 0, 0], position - before)
}

function between(from: Rgb, to: Rgb, part: number): Rgb {
  return [
    Math.round(from[0] + part * (to[0] - from[0])),
    Math.round(from[1] + part * (to[1] - from[1])),
    Math.round(from[2] + part * (to[2] - from[2])),
  ]
}

/** Return the colour of a cell; null for a cell without a value. */
export function cellColour(value: number | null, mark: number, scale: Scale, theme: Theme): Rgb | null {
  if (mark & NAN) return PALETTES[theme].nan
  if (mark & INFINITE) return PALETTES[theme].infinite
  if (value === null) return null
  if (value === 0 && scale.kind === 'magnitude') return ZERO[theme]
  return colourAt(shareOf(value, scale), scale.kind, theme)
}
