import { keepPreviousData, useQueries, useQuery } from '@tanstack/react-query'
import { get } from '~/api/client'
import { keys, path, useSession } from '~/api/queries'
import type { Overview, Schemas, StatisticsRow } from '~/api/types'
import { EVERY_MS, useNews } from '~/panels/overview/queries'
import { useView } from '~/state/store'
import type { AddedTensor } from './series'

const POINTS = 800
const MOST_TENSORS = 30

/** The curves reported by the training, refetched while it runs. */
export function useCurves() {
  const run = useView((view) => view.run)
  const rank = useView((view) => view.rank)
  const { data: session } = useSession()
  const curves = useQuery({
    queryKey: [...keys.session(run), 'curves', rank],
    queryFn: ({ signal }) => get<Schemas['Curves']>(path(run, '/curves'), { rank, points: POINTS }, signal),
    enabled: session !== undefined && session.state !== 'connecting' && session.ranks.length > 0,
    placeholderData: keepPreviousData,
    refetchInterval: session?.state === 'running' ? EVERY_MS : false,
  })
  useNews(curves.refetch)
  return curves
}

/** The statistics of tensors over the steps, in the order of the tensors. */
export function useHistories(tensors: readonly AddedTensor[]) {
  const run = useView((view) => view.run)
  const { data: session } = useSession()
  return useQueries({
    queries: tensors.map(({ address }) => ({
      queryKey: keys.step(run, 'history', address),
      queryFn: ({ signal }: { signal: AbortSignal }) =>
        get<StatisticsRow[]>(path(run, '/tensor/history'), { address: `${address}@0` }, signal),
      refetchInterval: session?.state === 'running' ? 2 * EVERY_MS : (false as const),
    })),
  })
}

/** Tensors with statistics, by words of their names. */
export function useTensorsNamed(query: string, enabled: boolean) {
  const run = useView((view) => view.run)
  const rank = useView((view) => view.rank)
  return useQuery({
    queryKey: keys.step(run, 'tensors named', rank, query),
    queryFn: ({ signal }) =>
      get<Overview>(
        path(run, '/overview'),
        { rank, query, limit: MOST_TENSORS, rows: MOST_TENSORS, columns: 1 },
        signal,
      ),
    // The value of a parameter before its update has no curve.
    select: (overview) => overview.rows.filter(({ io }) => io === 'output'),
    enabled,
    placeholderData: keepPreviousData,
  })
}
