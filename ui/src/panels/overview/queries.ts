import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { useEffect } from 'react'
import { get } from '~/api/client'
import { keys, path, useSession } from '~/api/queries'
import type { Overview, OverviewStatistic, Timeline } from '~/api/types'
import { useView } from '~/state/store'
import type { Part } from './geometry'

/** While a training runs, so often what it has reported is read anew. */
export const EVERY_MS = 1_500

export interface OverviewQuery {
  statistic: OverviewStatistic
  query: string
  part: Part | null
  rows: number
  columns: number
  /** Addresses of tensors whose rows are to be known. */
  locate: readonly string[]
}

/** The picture; with `isReading` a dump is read on, a second at a time, until nothing is left. */
export function useOverview(
  query: OverviewQuery,
  isMeasured: boolean,
  isReading: (unreadBytes: number) => boolean,
) {
  const run = useView((view) => view.run)
  const rank = useView((view) => view.rank)
  const { data: session } = useSession()
  const isRunning = session?.state === 'running'
  const { part, ...rest } = query
  const found = useQuery({
    queryKey: [...keys.session(run), 'overview', rank, query],
    queryFn: ({ signal, client, queryKey }) => {
      const before = client.getQueryData<Overview>(queryKey)
      return get<Overview>(
        path(run, '/overview'),
        {
          rank,
          ...rest,
          ...(part && {
            offset: part.offset,
            limit: part.limit,
            first_step: part.firstStep,
            last_step: part.lastStep,
          }),
          read: before !== undefined && before.unread > 0 && isReading(before.unread_bytes),
        },
        signal,
      )
    },
    enabled:
      isMeasured && session !== undefined && session.state !== 'connecting' && session.ranks.length > 0,
    placeholderData: keepPreviousData,
    refetchInterval: ({ state: { data } }) =>
      data && data.unread > 0 && isReading(data.unread_bytes) ? 1 : isRunning ? EVERY_MS : false,
  })
  useNews(found.refetch)
  return found
}

export function useTimeline(columns: number) {
  const run = useView((view) => view.run)
  const rank = useView((view) => view.rank)
  const { data: session } = useSession()
  const found = useQuery({
    queryKey: [...keys.session(run), 'timeline', rank, columns],
    queryFn: ({ signal }) => get<Timeline>(path(run, '/timeline'), { rank, columns }, signal),
    enabled: session !== undefined && session.state !== 'connecting' && session.ranks.length > 0,
    placeholderData: keepPreviousData,
    refetchInterval: session?.state === 'running' ? EVERY_MS : false,
  })
  useNews(found.refetch)
  return found
}

/**
 * Read anew when the run has stopped somewhere else, or has other hits. Not through the events of steps: of those a
 * training sends several in the time that an answer takes, and each would begin it anew.
 */
export function useNews(refetch: (options: { cancelRefetch: boolean }) => Promise<unknown>) {
  const { data: session } = useSession()
  const news =
    session === undefined || session.state === 'running'
      ? ''
      : [session.state, session.step, session.present_step, session.hits, session.outdated].join()
  useEffect(() => {
    if (news) void refetch({ cancelRefetch: false })
  }, [news, refetch])
}
