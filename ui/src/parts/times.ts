import i18next from 'i18next'

const UNITS = [
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
  ['second', 1],
] as const

const LONG_AGO_S = 30 * 86_400

/** How long ago a time in seconds is, in the person's language; of long ago the date. */
export function ago(time: number, now = Date.now() / 1000): string {
  const passed = Math.max(now - time, 0)
  if (passed > LONG_AGO_S) return new Date(time * 1000).toLocaleDateString(i18next.language)
  const [unit, size] = UNITS.find((one) => passed >= one[1]) ?? ['second', 1]
  const words = new Intl.RelativeTimeFormat(i18next.language, { numeric: 'auto' })
  return words.format(-Math.floor(passed / size), unit)
}

/** A time in seconds in full. */
export function moment(time: number): string {
  return new Date(time * 1000).toLocaleString(i18next.language)
}
