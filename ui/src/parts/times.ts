import i18next from 'i18next'

const UNITS = [
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
  ['second', 1],
] as const

const LONG_AGO_S = 30 * 86_400

/** Format how long ago a time in seconds is, in the user's language; after a month, its date. */
export function ago(time: number, now = Date.now() / 1000): string {
  const passed = Math.max(now - time, 0)
  if (passed > LONG_AGO_S) return new Date(time * 1000).toLocaleDateString(i18next.language)
  const [unit, size] = UNITS.find(([, seconds]) => passed >= seconds) ?? ['second', 1]
  const words = new Intl.RelativeTimeFormat(i18next.language, { numeric: 'auto' })
  return words.format(-Math.floor(passed / size), unit)
}

/** Format a time in seconds in full. */
export function moment(time: number): string {
  return new Date(time * 1000).toLocaleString(i18next.language)
}
