import type { Theme } from '~/panels/overview/scale'

/** Distinguishable on both backgrounds, also with red-green colour blindness. */
export const COLOURS: Record<Theme, readonly string[]> = {
  light: ['#1864ab', '#b35900', '#5f3dc4', '#087f5b', '#a61e4d', '#495057', '#0b7285', '#846a00'],
  dark: ['#74c0fc', '#ffa94d', '#b197fc', '#63e6be', '#faa2c1', '#ced4da', '#66d9e8', '#ffe066'],
}
