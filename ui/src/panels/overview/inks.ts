import type { Theme } from './scale'

/** Colours other than those of values. */
export interface Ink {
  text: string
  quiet: string
  line: string
  back: string
  hit: string
  chosen: string
  faint: string
}

export const INKS: Record<Theme, Ink> = {
  light: {
    text: '#1f2428',
    quiet: '#5c636a',
    line: '#d0d5da',
    back: '#ffffff',
    hit: '#c92a2a',
    chosen: '#1864ab',
    faint: '#eceff2',
  },
  dark: {
    text: '#e6e8ea',
    quiet: '#a3a9b0',
    line: '#45494e',
    back: '#242424',
    hit: '#ff8787',
    chosen: '#74c0fc',
    faint: '#303236',
  },
}
