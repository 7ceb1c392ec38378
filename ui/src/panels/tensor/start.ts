import { useQuery } from '@tanstack/react-query'
import { useView } from '~/state/store'
import type { Statistics } from '~/api/types'
import { elementQuery, type ValueRequest } from './queries'
import { defaultEntries, entriesAt, parseEntries } from './slices'
import { MOST_COLUMNS, MOST_ROWS } from './tableLayout'
import { WRAPPED } from './grid'
import type { TensorView } from './views'

/** Maximum number of elements of a tensor that is searched for its largest one first: a tenth of a second. */
const MOST_SEARCHED = 2 ** 27
/** Elements shown on each side of an element that is otherwise out of the table's reach. */
const AROUND = 500

/** Return the number of NaN and infinite elements; null if it is not known. */
export function nonFinite(statistics: Statistics | null | undefined): number | null {
  if (!statistics || statistics.partial) return null
  return statistics.nan_count + statistics.pos_inf_count + statistics.neg_inf_count
}

/**
 * The element at which a tensor opens: its first NaN or infinity, else its largest element; null if there is none.
 * Undefined while it loads, so that the view does not jump a moment later.
 */
export function useFirstElement(
  request: ValueRequest,
  view: TensorView,
  shape: readonly number[] | null,
  statistics: Statistics | null | undefined,
): readonly number[] | null | undefined {
  const run = useView((state) => state.run)
  const elements = shape?.reduce((product, length) => product * length, 1) ?? 0
  const isWorthIt = elements > 0 && (elements <= MOST_SEARCHED || (nonFinite(statistics) ?? 0) > 0)
  const { data, isPending } = useQuery({ ...elementQuery(run, request, 'first'), enabled: isWorthIt })
  if (isWorthIt && isPending && view.entries === null) return undefined
  return data?.index ?? null
}

/** Return the slice to show: the chosen one, else that of the element at which the tensor opens. */
export function shownEntries(
  view: TensorView,
  shape: readonly number[],
  first: readonly number[] | null | undefined,
): readonly string[] {
  const chosen = view.entries
  if (chosen?.length === shape.length && !('key' in parseEntries(chosen, shape))) return chosen
  return firstEntries(view, shape, first)
}

/** Return the slice of the element at which a tensor opens, ignoring the chosen one. */
export function firstEntries(
  view: TensorView,
  shape: readonly number[],
  first: readonly number[] | null | undefined,
): readonly string[] {
  return first ? reached(view, first, defaultEntries(shape), shape) : defaultEntries(shape)
}

/** Return a slice that contains an element, within the limits of the table if it is shown as a table. */
export function reached(
  view: TensorView,
  index: readonly number[],
  shown: readonly string[],
  shape: readonly number[],
): string[] {
  const entries = entriesAt(index, shown, shape)
  if (view.presentation !== 'table') return entries
  const parsed = parseEntries(entries, shape)
  if ('key' in parsed) return entries
  const ranges = parsed.flatMap((entry, dimension) => (entry.kind === 'range' ? [dimension] : []))
  const limits = ranges.length === 1 ? [MOST_ROWS * WRAPPED] : [MOST_ROWS, MOST_COLUMNS]
  return entries.map((text, dimension) => {
    const [position, length] = [index[dimension] ?? 0, shape[dimension] ?? 0]
    const limit = limits[ranges.indexOf(dimension)]
    if (limit === undefined || position < limit) return text
    return `${Math.max(0, position - AROUND)}:${Math.min(length, position + AROUND)}`
  })
}
