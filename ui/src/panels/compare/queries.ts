import { keepPreviousData, useMutation, useQueries, useQuery, useQueryClient } from '@tanstack/react-query'
import { change, get } from '~/api/client'
import { keys } from '~/api/queries'
import { pagesOf } from '~/panels/tensors/virtualRows'
import { showRefusal } from '~/parts/refusal'
import { useView } from '~/state/store'
import { useCompareState, type OperatorFilter } from './compareState'
import type {
  ComparedLosses,
  ComparedOperator,
  ComparedOperatorPage,
  ComparedStatistics,
  Comparison,
  RankComparison,
  UnmatchedPage,
} from '~/api/types'

/** Rows per request. */
const PAGE = 200
/** Interval of the requests for the progress of an unfinished comparison. */
const EVERY_MS = 400
/** Maximum number of unmatched names listed per side; the filter finds the others. */
export const MOST_UNMATCHED = 500
const POINTS = 800

const path = (id: string, rest = '') => `comparisons/${encodeURIComponent(id)}${rest}`

/** The comparison of the run shown with the other one; the first request starts it. */
export function useComparison() {
  const run = useView((view) => view.run)
  const other = useView((view) => view.other)
  const begun = useQuery({
    queryKey: keys.comparisonOf(run, other),
    queryFn: () => change<Comparison>('POST', 'comparisons', { a: run, b: other }),
    enabled: run !== '' && other !== '',
  })
  const id = begun.data?.id
  const record = useQuery({
    queryKey: keys.comparison(id ?? ''),
    queryFn: ({ signal }) => get<Comparison>(path(id ?? ''), {}, signal),
    enabled: id !== undefined,
    ...(begun.data && { initialData: begun.data }),
    refetchInterval: ({ state }) =>
      state.data && isUnfinished(state.data) && !state.error ? EVERY_MS : false,
  })
  return { data: record.data, error: begun.error ?? record.error }
}

export function isUnfinished(comparison: Comparison): boolean {
  return comparison.state === 'waiting' || comparison.state === 'running'
}

/** The rank and the step shown of a finished comparison. */
export interface Shown {
  comparison: Comparison
  result: RankComparison
  /** Null: no step was compared. */
  step: number | null
}

export function useShown(): Shown | undefined {
  const rank = useView((view) => view.rank)
  const { data: comparison } = useComparison()
  const chosen = useCompareState((state) => (state.id === comparison?.id ? state.step : null))
  const result = comparison?.ranks.find((other) => other.rank === rank) ?? comparison?.ranks[0]
  if (!comparison || !result) return undefined
  return { comparison, result, step: shownStep(result, chosen) }
}

/** Return the chosen step, else the step of the finding, else the last step compared. */
export function shownStep({ steps, step }: RankComparison, chosen: number | null): number | null {
  return (
    [chosen, step].find((candidate) => candidate != null && steps.includes(candidate)) ?? steps.at(-1) ?? null
  )
}

/** Mutations that compare the same runs again, as a training may have continued, and that cancel a comparison. */
export function useComparing() {
  const client = useQueryClient()
  const run = useView((view) => view.run)
  const other = useView((view) => view.other)
  const key = keys.comparisonOf(run, other)
  const again = useMutation({
    mutationFn: () => change<Comparison>('POST', 'comparisons', { a: run, b: other, fresh: true }),
    onSuccess: (record) => client.setQueryData(key, record),
    onError: showRefusal,
  })
  const cancel = useMutation({
    mutationFn: (id: string) => change('DELETE', path(id)),
    onError: showRefusal,
    onSettled: () => {
      useView.getState().set({ other: '', part: null })
      client.removeQueries({ queryKey: key })
    },
  })
  return { again, cancel }
}

function useAskOperators(filter: OperatorFilter) {
  const shown = useShown()
  const { comparison, result, step } = shown ?? {}
  const id = comparison?.id ?? ''
  const query = { rank: result?.rank, step, ...filter, phase: filter.phase || null }
  return (page: number) => ({
    queryKey: keys.comparison(id, 'operators', query, page),
    queryFn: ({ signal }: { signal: AbortSignal }) =>
      get<ComparedOperatorPage>(
        path(id, '/operators'),
        { ...query, offset: page * PAGE, limit: PAGE },
        signal,
      ),
    enabled: shown !== undefined && step !== null,
  })
}

/** The first page of the compared operators of the step shown, with their total number. */
export function useFirstOperators(filter: OperatorFilter) {
  return useQuery({ ...useAskOperators(filter)(0), placeholderData: keepPreviousData })
}

/** The compared operators in a range of positions, as far as they have been loaded. */
export function useOperators(
  filter: OperatorFilter,
  first: number,
  last: number,
): Map<number, ComparedOperator> {
  const ask = useAskOperators(filter)
  return useQueries({
    queries: pagesOf(first, last, PAGE).map((page) => ask(page)),
    combine: (pages) =>
      new Map(
        pages.flatMap(({ data }) =>
          data ? data.rows.map((row, index) => [data.offset + index, row] as const) : [],
        ),
      ),
  })
}

/** The pair of an operator of A in the step shown; null if it was not compared, undefined while it loads. */
export function usePair(name: string | null): ComparedOperator | null | undefined {
  const shown = useShown()
  const { comparison, result, step } = shown ?? {}
  const query = { rank: result?.rank, step, name, limit: 1 }
  const { data } = useQuery({
    queryKey: keys.comparison(comparison?.id ?? '', 'pair', query),
    queryFn: ({ signal }) =>
      get<ComparedOperatorPage>(path(comparison?.id ?? '', '/operators'), query, signal),
    enabled: shown !== undefined && step !== null && name !== null,
  })
  if (name === null || step === null) return null
  return data && (data.rows[0] ?? null)
}

export interface UnmatchedQuery {
  side: 'a' | 'b'
  kind: 'operators' | 'parameters'
  query: string
}

export function useUnmatched(filter: UnmatchedQuery) {
  const shown = useShown()
  const id = shown?.comparison.id ?? ''
  const query = { rank: shown?.result.rank, ...filter, limit: MOST_UNMATCHED }
  return useQuery({
    queryKey: keys.comparison(id, 'unmatched', query),
    queryFn: ({ signal }) => get<UnmatchedPage>(path(id, '/unmatched'), query, signal),
    enabled: shown !== undefined,
    placeholderData: keepPreviousData,
  })
}

export function useLosses() {
  const shown = useShown()
  const id = shown?.comparison.id ?? ''
  const query = { rank: shown?.result.rank, points: POINTS }
  return useQuery({
    queryKey: keys.comparison(id, 'losses', query),
    queryFn: ({ signal }) => get<ComparedLosses>(path(id, '/losses'), query, signal),
    enabled: shown !== undefined,
  })
}

/** Return the request for the values of one side of a pair of tensors, or of their difference. */
export function valuesOf(id: string, a: string, b: string, which: 'a' | 'b' | 'difference') {
  return { path: path(id, '/tensor'), query: { a, b, which } }
}

export function useBothStatistics(id: string, a: string, b: string, slice: string) {
  return useQuery({
    queryKey: keys.comparison(id, 'statistics', a, b, slice),
    queryFn: ({ signal }) => get<ComparedStatistics>(path(id, '/tensor/statistics'), { a, b, slice }, signal),
    placeholderData: keepPreviousData,
  })
}
