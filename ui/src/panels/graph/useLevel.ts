import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { get } from '~/api/client'
import { keys, path } from '~/api/queries'
import type { GraphLevel } from '~/api/types'

export interface LevelQuery {
  run: string
  rank: number
  graph: string
  watchpoint: number | null
  scopes: readonly string[]
}

/** A graph with some open scopes. It includes hits and watched nodes, so it is refetched with the hits. */
export function useLevel(query: LevelQuery) {
  const { run, rank, graph, watchpoint, scopes } = query
  return useQuery({
    queryKey: keys.hits(run, 'level', rank, graph, watchpoint, scopes),
    queryFn: ({ signal }) => readLevel(query, signal),
    enabled: run !== '' && graph !== '',
    placeholderData: keepPreviousData,
  })
}

export function readLevel(
  { run, rank, graph, watchpoint, scopes }: LevelQuery,
  signal?: AbortSignal,
): Promise<GraphLevel> {
  const open = new URLSearchParams(scopes.map((scope) => ['open', scope]))
  return get(path(run, `/level?${open}`), { rank, graph, beside: true, watchpoint, limit: 5000 }, signal)
}
