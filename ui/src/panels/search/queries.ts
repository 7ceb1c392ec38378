import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { get } from '~/api/client'
import { keys } from '~/api/queries'
import type { SearchRecord, SearchResult } from '~/api/types'

/** Polling interval while trials run. */
const REFRESH_MS = 4_000

/** The searches below the server's base directory. */
export function useSearches() {
  return useQuery({
    queryKey: keys.searches,
    queryFn: ({ signal }) => get<SearchRecord[]>('searches', {}, signal),
    staleTime: 3_000,
    refetchOnMount: true,
  })
}

/** The current result of a search, polled while trials run. */
export function useSearchResult(name: string) {
  return useQuery({
    queryKey: keys.searched(name),
    queryFn: ({ signal }) => get<SearchResult>('searches/result', { name }, signal),
    enabled: name !== '',
    placeholderData: keepPreviousData,
    refetchOnMount: true,
    refetchInterval: (query) =>
      query.state.data?.trials.some(({ state }) => state === 'running') === true ? REFRESH_MS : false,
  })
}
