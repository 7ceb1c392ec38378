import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { useEffect } from 'react'
import { get } from '~/api/client'
import { keys, path, useSession } from '~/api/queries'
import type { Overview, OverviewStatistic, Timeline } from '~/api/types'
import { useView } from '~/state/store'
import type { Part } from './geometry'

/** Interval of refetches while a training runs. */
export const EVERY_MS = 1_500

export interface OverviewQuery {
  statistic: OverviewStatistic
  query: string
  part: Part | null
  rows: number
  columns: number
  /** Addresses of tensors whose rows the server should locate. */
  locate: readonly string[]
}

/** The overview; while `isReading` returns true, the server reads a dump further, a second at a time. */
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
  const overview = useQuery({
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
  useNews(overview.refetch)
  return overview
}

export function useTimeline(columns: number) {
  const run = useView((view) => view.run)
  const rank = useView((view) => view.rank)
  const { data: session } = useSession()
  const timeline = useQuery({
    queryKey: [...keys.session(run), 'timeline', rank, columns],
    queryFn: ({ signal }) => get<Timeline>(path(run, '/timeline'), { rank, columns }, signal),
    enabled: session !== undefined && session.state !== 'connecting' && session.ranks.length > 0,
    placeholderData: keepPreviousData,
    refetchInterval: session?.state === 'running' ? EVERY_MS : false,
  })
  useNews(timeline.refetch)
  return timeline
}

/**
 * Refetch when the run has stopped elsewhere or has other hits. Step events are not used: a training sends several of
 * them during one response, and each would restart the request.
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
