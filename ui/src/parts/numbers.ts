const DIGITS = 4

/** Format a number with four significant digits, and with an exponent only where it helps; a dash if there is none. */
export function short(value: number | string | null | undefined, digits = DIGITS): string {
  if (value === null || value === undefined) return '–'
  if (typeof value === 'string') return value === 'Infinity' ? 'Inf' : value === '-Infinity' ? '-Inf' : value
  if (Number.isNaN(value)) return 'NaN'
  if (!Number.isFinite(value)) return value > 0 ? 'Inf' : '-Inf'
  if (value === 0) return '0'
  const size = Math.abs(value)
  if (Number.isInteger(value) && size < 1e6) return String(value)
  return size >= 1e5 || size < 1e-3
    ? value.toExponential(digits - 1)
    : String(Number(value.toPrecision(digits)))
}

/** Return how many digits the numbers of an axis need, so that its ends, and what is between them, read differently. */
export function digitsBetween(low: number, high: number): number {
  const share = Math.max(Math.abs(low), Math.abs(high)) / (high - low)
  return Number.isFinite(share) ? Math.min(15, Math.max(DIGITS, Math.ceil(Math.log10(share)) + 2)) : DIGITS
}

const groups = new Intl.NumberFormat('en-US')

export function count(value: number): string {
  return groups.format(value)
}

export function percent(part: number, whole: number): string {
  return whole === 0 ? '–' : `${short((100 * part) / whole)} %`
}

export function bytes(size: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let unit = 0
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024
    unit += 1
  }
  return `${unit === 0 ? size : size.toFixed(size < 10 ? 2 : 1)} ${units[unit] ?? ''}`
}

export function shapeText(shape: readonly number[] | null | undefined): string {
  return shape === null || shape === undefined
    ? '[?]'
    : `[${shape.map((size) => (size < 0 ? '?' : size)).join(', ')}]`
}
