import type { Sign } from './elements'

export type Rgb = readonly [number, number, number]

/** Colours of values: negative blue, positive orange, distinguishable also with red-green colour blindness. */
export interface Palette {
  zero: Rgb
  negative: Rgb
  positive: Rgb
  nan: Rgb
  infinite: Rgb
}

export const PALETTES: Record<'light' | 'dark', Palette> = {
  light: {
    zero: [246, 247, 249],
    negative: [18, 78, 158],
    positive: [203, 75, 4],
    nan: [176, 0, 122],
    infinite: [17, 17, 17],
  },
  dark: {
    zero: [43, 45, 49],
    negative: [96, 178, 255],
    positive: [255, 158, 67],
    nan: [255, 92, 205],
    infinite: [255, 255, 255],
  },
}

/** Marks of non-finite values, so that colour is not the only sign. */
export const MARKS: Partial<Record<Sign, string>> = { nan: '✕', inf: '▲', '-inf': '▼' }

/** Decades that a logarithmic scale shows below the largest magnitude. */
const DECADES = 6

/** Return the position of a finite number between zero and the largest magnitude, from 0 to 1. */
export function share(number: number, largest: number, scale: 'linear' | 'logarithmic'): number {
  const size = Math.abs(number)
  if (size === 0 || !(largest > 0)) return 0
  if (size >= largest) return 1
  return scale === 'linear' ? size / largest : Math.max(0.06, 1 + Math.log10(size / largest) / DECADES)
}

export function colourOf(
  number: number,
  largest: number,
  scale: 'linear' | 'logarithmic',
  palette: Palette,
): Rgb {
  if (Number.isNaN(number)) return palette.nan
  if (!Number.isFinite(number)) return palette.infinite
  const part = share(number, largest, scale)
  const end = number < 0 ? palette.negative : palette.positive
  return [0, 1, 2].map((channel) => {
    const zero = palette.zero[channel] ?? 0
    return Math.round(zero + part * ((end[channel] ?? 0) - zero))
  }) as unknown as Rgb
}

/** Return black or white, whichever is readable on a colour. */
export function inkOn([red, green, blue]: Rgb): string {
  const linear = [red, green, blue].map((channel) => {
    const value = channel / 255
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4
  })
  const luminance = 0.2126 * (linear[0] ?? 0) + 0.7152 * (linear[1] ?? 0) + 0.0722 * (linear[2] ?? 0)
  return luminance > 0.179 ? '#000' : '#fff'
}

export const css = ([red, green, blue]: Rgb) => `rgb(${red} ${green} ${blue})`
