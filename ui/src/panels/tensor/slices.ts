/** One entry of a slice, for one dimension: an index, or a range that keeps the dimension. */
export type Entry =
  { kind: 'index'; index: number } | { kind: 'range'; start: number; end: number; step: number }

/** Why a text is not a slice: the key of a message with its values. */
export interface SliceError {
  dimension: number
  key: 'empty' | 'form' | 'index' | 'bound' | 'step' | 'ranges'
  values: Record<string, number | string>
}

const INTEGER = /^[+-]?\d{1,15}$/
/** Number of dimensions of a table or heat map. */
export const MOST_RANGES = 2

/** Return the initial slice: the last two dimensions, index 0 of the others. */
export function defaultEntries(shape: readonly number[]): string[] {
  return shape.map((length, dimension) => (dimension < shape.length - MOST_RANGES && length > 0 ? '0' : ':'))
}

/** Format a slice for the server: `[0, :, 2:8]`. */
export function sliceText(entries: readonly string[]): string {
  return `[${entries.map((entry) => entry.trim()).join(', ')}]`
}

/** Parse the input for one dimension by Python's rules. */
export function parseEntry(text: string, dimension: number, length: number): Entry | SliceError {
  const parts = text.split(':').map((part) => part.trim())
  if (text.trim() === '') return { dimension, key: 'empty', values: { length } }
  const isRange = parts.length > 1
  if (parts.length > 3 || parts.some((part) => !(INTEGER.test(part) || (isRange && part === '')))) {
    return { dimension, key: 'form', values: { text: text.trim().slice(0, 40) } }
  }
  const numbers = parts.map((part) => (part === '' ? null : Number(part)))
  if (!isRange) {
    const index = numbers[0] ?? 0
    if (index < -length || index >= length) {
      return { dimension, key: 'index', values: { text: index, least: -length, most: length - 1 } }
    }
    return { kind: 'index', index: index < 0 ? index + length : index }
  }
  const step = numbers[2] ?? 1
  if (step === 0) return { dimension, key: 'step', values: {} }
  for (const bound of numbers.slice(0, 2)) {
    if (bound !== null && (bound < -length || bound > length)) {
      return { dimension, key: 'bound', values: { text: bound, least: -length, most: length } }
    }
  }
  const clampedTo = (bound: number | null | undefined, otherwise: number) =>
    bound === null || bound === undefined ? otherwise : bound < 0 ? bound + length : bound
  if (step > 0) {
    return { kind: 'range', start: clampedTo(numbers[0], 0), end: clampedTo(numbers[1], length), step }
  }
  return {
    kind: 'range',
    start: Math.min(clampedTo(numbers[0], length - 1), length - 1),
    end: clampedTo(numbers[1], -1),
    step,
  }
}

/** Return the position of an index in a range; null if it is not in it. */
export function rangePosition(range: Entry & { kind: 'range' }, index: number): number | null {
  const position = (index - range.start) / range.step
  return Number.isInteger(position) && position >= 0 && position < rangeLength(range) ? position : null
}

/** Return a slice that contains an element: the slice shown if possible, else a similar one. */
export function entriesAt(
  index: readonly number[],
  shown: readonly string[],
  shape: readonly number[],
): string[] {
  return shown.map((text, dimension) => {
    const position = index[dimension] ?? 0
    const entry = parseEntry(text, dimension, shape[dimension] ?? 0)
    if ('key' in entry) return ':'
    if (entry.kind === 'index') return String(position)
    return rangePosition(entry, position) === null ? ':' : text
  })
}

/** Return the number of elements of a range. */
export function rangeLength(range: Entry & { kind: 'range' }): number {
  return Math.max(0, Math.ceil((range.end - range.start) / range.step))
}

/** Parse a whole slice; return the first error if it is invalid. */
export function parseEntries(entries: readonly string[], shape: readonly number[]): Entry[] | SliceError {
  const parsed: Entry[] = []
  for (const [dimension, length] of shape.entries()) {
    const entry = parseEntry(entries[dimension] ?? ':', dimension, length)
    if ('key' in entry) return entry
    parsed.push(entry)
  }
  const ranges = parsed.flatMap((entry, dimension) => (entry.kind === 'range' ? [dimension] : []))
  const surplus = ranges.at(MOST_RANGES)
  if (surplus !== undefined) {
    return { dimension: surplus, key: 'ranges', values: { ranges: ranges.length, most: MOST_RANGES } }
  }
  return parsed
}

/** Return part of a range as text for the server: `count` elements from the `first` on. */
export function rangePart(range: Entry & { kind: 'range' }, first: number, count: number): string {
  const start = range.start + first * range.step
  const last = start + count * range.step
  const end = range.step > 0 ? Math.min(last, range.end) : last
  if (range.step === 1) return `${start}:${end}`
  // Down to the first element, for which there is no number: -1 is the last element.
  return end < 0 ? `${start}::${range.step}` : `${start}:${end}:${range.step}`
}

/** Return the slice of a rectangle in another slice. */
export function zoomed(
  entries: readonly Entry[],
  isOneDimension: boolean,
  from: { row: number; column: number },
  to: { row: number; column: number },
): string[] {
  const positions = isOneDimension
    ? [[from.column, to.column] as const]
    : [[from.row, to.row] as const, [from.column, to.column] as const]
  return entries.map((entry) => {
    if (entry.kind === 'index') return String(entry.index)
    const [first, last] = positions.shift() ?? [0, 0]
    return rangePart(entry, first, last - first + 1)
  })
}
