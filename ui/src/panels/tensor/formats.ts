import type { Element } from './elements'

export type Notation = 'auto' | 'decimal' | 'scientific'

/** The format of numbers. */
export interface NumberFormat {
  notation: Notation
  /** Significant digits (auto), or digits after the point. */
  digits: number
}

export const MOST_DIGITS = 10

/** Format an element. A value other than 0 is never written as 0, but as `≈0` if the digits do not suffice. */
export function formatted(element: Element | null | undefined, format: NumberFormat): string {
  if (element === null || element === undefined) return '–'
  if (typeof element === 'boolean') return element ? 'True' : 'False'
  if (typeof element === 'object') {
    const imaginary = formatted(element.imaginary, format)
    return `${formatted(element.real, format)}${/^[-≈]/.test(imaginary) ? '' : '+'}${imaginary}j`
  }
  if (typeof element === 'bigint') {
    return format.notation === 'scientific' ? Number(element).toExponential(format.digits) : String(element)
  }
  const special = specialText(element)
  if (special !== null) return special
  if (format.notation === 'scientific') return element.toExponential(format.digits)
  if (format.notation === 'decimal') {
    const text = element.toFixed(format.digits)
    return /[1-9]/.test(text) ? text : element < 0 ? '≈-0' : '≈0'
  }
  return significant(element, Math.max(1, format.digits))
}

function specialText(number: number): string | null {
  if (Number.isNaN(number)) return 'NaN'
  if (number === Infinity) return '+Inf'
  if (number === -Infinity) return '-Inf'
  if (number === 0) return Object.is(number, -0) ? '-0' : '0'
  return null
}

function significant(number: number, digits: number): string {
  const size = Math.abs(number)
  if (Number.isInteger(number) && size < 1e9) return String(number)
  if (size >= 1e6 || size < 1e-4) {
    return number.toExponential(digits - 1).replace(/\.?0+e/, 'e')
  }
  return String(Number(number.toPrecision(digits)))
}

/** Digits that suffice to read the same number back, by the type of the elements. */
const MOST_NEEDED: Record<string, number> = {
  float32: 9,
  complex64: 9,
  float16: 5,
  bfloat16: 4,
  float8_e4m3fn: 3,
  float8_e5m2: 2,
}

/** Return the shortest text from which the same element can be read back. */
export function exactText(element: Element, dtype: string): string {
  if (typeof element === 'object') {
    const imaginary = exactText(element.imaginary, dtype)
    return `${exactText(element.real, dtype)}${imaginary.startsWith('-') ? '' : '+'}${imaginary}j`
  }
  if (typeof element !== 'number') return formatted(element, { notation: 'auto', digits: 1 })
  const special = specialText(element)
  if (special !== null) return special
  const most = MOST_NEEDED[dtype]
  if (most === undefined || Number.isInteger(element)) return String(element)
  const nearest = NEAREST[dtype] ?? Math.fround
  for (let digits = 1; digits < most; digits += 1) {
    const text = Number(element.toPrecision(digits))
    if (nearest(text) === element) return String(text)
  }
  return String(Number(element.toPrecision(most)))
}

/** Round to a type with the given number of fraction bits and minimum exponent. */
function rounded(number: number, bits: number, leastExponent: number): number {
  const exponent = Math.max(Math.floor(Math.log2(Math.abs(number))), leastExponent)
  const unit = 2 ** (exponent - bits)
  const share = number / unit
  const down = Math.floor(share)
  const rest = share - down
  const up = rest > 0.5 || (rest === 0.5 && down % 2 !== 0)
  return (down + (up ? 1 : 0)) * unit
}

const NEAREST: Record<string, (number: number) => number> = {
  float16: (number) => rounded(number, 10, -14),
  bfloat16: (number) => rounded(number, 7, -126),
  float8_e4m3fn: (number) => rounded(number, 3, -6),
  float8_e5m2: (number) => rounded(number, 2, -14),
}

/** Convert a number from JSON, in which NaN and the infinities are strings. */
export function fromJson(value: number | string | boolean | null | undefined): Element | null {
  if (value === null || value === undefined) return null
  return typeof value === 'string' ? Number(value) : value
}
