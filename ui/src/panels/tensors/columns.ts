import { MEASURES, type Measure } from '~/api/statistics'
import type { StatisticsRow } from '~/api/types'
import { count, percent, shapeText, short } from '~/parts/numbers'

/** A column of the table; its id is the server's sort key. */
export interface Column {
  id: ColumnId
  width: number
  isNumber: boolean
  isSortable: boolean
  text: (row: StatisticsRow) => string
}

export type ColumnId =
  | 'position'
  | 'node'
  | 'type'
  | 'io'
  | 'dtype'
  | 'shape'
  | 'abs_max'
  | 'zero_percent'
  | 'non_finite_count'
  | 'count'
  | Measure

const measure = (id: Measure): Column => ({
  id,
  width: 94,
  isNumber: true,
  isSortable: true,
  text: ({ statistics }) => short(statistics[id]),
})

const text = (id: ColumnId, width: number, of: Column['text'], isSortable = true): Column => ({
  id,
  width,
  isNumber: false,
  isSortable,
  text: of,
})

export const COLUMNS: Column[] = [
  { ...text('position', 46, ({ position }) => (position === null ? '–' : String(position))), isNumber: true },
  text('node', 220, ({ node }) => node),
  text('type', 96, ({ type }) => type),
  text('io', 58, ({ io, slot }) => (io === 'input' ? `in ${slot}` : `out ${slot}`)),
  { ...text('non_finite_count', 92, notFinite), isNumber: true },
  {
    ...text('abs_max', 88, ({ statistics: { min, max } }) =>
      min === null || max === null || min === undefined || max === undefined
        ? '–'
        : short(Math.max(Math.abs(min), Math.abs(max))),
    ),
    isNumber: true,
  },
  { ...text('zero_percent', 84, zeros), isNumber: true },
  ...MEASURES.map(measure),
  text('dtype', 76, ({ statistics }) => statistics.dtype),
  text('shape', 120, ({ statistics }) => shapeText(statistics.shape), false),
  {
    ...text('count', 88, ({ statistics }) => textIfKnown(statistics, 'count', count(statistics.count))),
    isNumber: true,
  },
]

export const WIDTH = COLUMNS.reduce((sum, column) => sum + column.width, 0)

function textIfKnown(statistics: StatisticsRow['statistics'], name: string, shown: string): string {
  return statistics.unknown.includes(name) ? '–' : shown
}

function zeros({ statistics }: StatisticsRow): string {
  return textIfKnown(statistics, 'zero_count', percent(statistics.zero_count, statistics.count))
}

/** Return the numbers of NaN and of infinite elements. */
export function badOf({ statistics }: StatisticsRow): { nan: number; inf: number } {
  return { nan: statistics.nan_count, inf: statistics.neg_inf_count + statistics.pos_inf_count }
}

function notFinite(row: StatisticsRow): string {
  const { nan, inf } = badOf(row)
  if (nan + inf === 0) return textIfKnown(row.statistics, 'nan_count', '0')
  return `${count(nan)} / ${count(inf)}`
}

/** A preset sort order, applied with one click. */
export interface Way {
  id: 'order' | 'bad' | 'gradient' | 'zeros' | 'large'
  sort: ColumnId
  isDescending: boolean
  /** Text for the filter; undefined: the filter is cleared. */
  query?: string
}

export const WAYS: Way[] = [
  { id: 'order', sort: 'position', isDescending: false },
  { id: 'large', sort: 'abs_max', isDescending: true },
  { id: 'bad', sort: 'non_finite_count', isDescending: true },
  { id: 'gradient', sort: 'abs_max', isDescending: true, query: 'Gradients/' },
  { id: 'zeros', sort: 'zero_percent', isDescending: true },
]
