import {
  keepPreviousData,
  useQueries,
  useQuery,
  type QueryKey,
  type UseQueryResult,
} from '@tanstack/react-query'
import { useCallback, useMemo } from 'react'
import { get } from '~/api/client'
import { keys, path, useSession, useWatchpoints } from '~/api/queries'
import type { SearchPage, TreePage } from '~/api/types'
import { useView } from '~/state/store'
import { isFiltering, searchQuery, type Filter } from './filter'
import type { FoundNode } from './searchRows'
import { openScopes, PAGE, pageKey, type PageState, type PageName } from './rows'
import { useTreeState } from './treeState'

/** Matches per request: the server's limit. */
export const SEARCH_PAGE = 1000
/** More matches than this are only listed: a tree must load them all before its first row is correct. */
export const MOST_IN_TREE = 3000

// The last version of each page, shown while the page is refetched, so that a tick or a step does not empty the tree.
const last = new Map<string, { page: TreePage; watchpoint: number | null }>()
const IN_MEMORY_MS = 60_000

/** The run, rank and watchpoint whose rows are loaded. */
export interface TreeView {
  run: string
  rank: number
  watchpoint: number | null
  /** Names the step at which hits are counted. */
  at: string
}

interface PageQuery<Page> {
  queryKey: QueryKey
  queryFn: (context: { signal: AbortSignal }) => Promise<Page>
  gcTime: number
}

/** The view of the tree. While a training runs, new steps do not cause a refetch; new hits do. */
export function useTreeView(): TreeView {
  const run = useView((view) => view.run)
  const rank = useView((view) => view.rank)
  const chosen = useView((view) => view.watchpoint)
  const { data: watchpoints } = useWatchpoints()
  const { data: session } = useSession()
  // A watchpoint deleted meanwhile has no ticks.
  const watchpoint = watchpoints?.some((record) => record.id === chosen) ? chosen : null
  const at = session === undefined || session.state === 'running' ? '' : `${session.step}`
  return useMemo(() => ({ run, rank, watchpoint, at }), [run, rank, watchpoint, at])
}

export function treePage(view: TreeView, { graph, scope, number }: PageName): PageQuery<TreePage> {
  const { run, rank, watchpoint, at } = view
  return {
    queryKey: keys.watchpoints(run, 'tree', rank, graph, scope, number, watchpoint, at),
    queryFn: async ({ signal }) => {
      const query = { rank, graph, scope, watchpoint, offset: number * PAGE, limit: PAGE }
      const page = await get<TreePage>(path(run, '/tree'), query, signal)
      last.set(lastKey(view, { graph, scope, number }), { page, watchpoint })
      return page
    },
    gcTime: IN_MEMORY_MS,
  }
}

function lastKey({ run, rank }: TreeView, page: PageName): string {
  return `${run}\n${rank}\n${pageKey(page)}`
}

export function forgetPages(): void {
  last.clear()
}

/** All pages of the open scopes. */
export function usePages(view: TreeView, graph: string, enabled: boolean) {
  const open = useTreeState((tree) => tree.open)
  const requestedPages = useTreeState((tree) => tree.requestedPages)
  const names = useMemo(() => {
    const scopes = openScopes(open, graph)
    const visible = new Set(scopes.map(pageKey))
    const more = [...requestedPages.values()].filter((page) => visible.has(pageKey({ ...page, number: 0 })))
    return [...new Map([...scopes, ...more].map((page) => [pageKey(page), page])).values()]
  }, [open, requestedPages, graph])
  const combine = useCallback(
    (results: UseQueryResult<TreePage>[]): ReadonlyMap<string, PageState> =>
      new Map(
        results.flatMap((result, index) => {
          const name = names[index]
          if (name === undefined) return []
          const isStale =
            result.isPlaceholderData && last.get(lastKey(view, name))?.watchpoint !== view.watchpoint
          return [[pageKey(name), { page: result.data, message: result.error?.message, isStale }] as const]
        }),
      ),
    [names, view],
  )
  return useQueries({
    queries: enabled
      ? names.map((name) => ({
          ...treePage(view, name),
          placeholderData: (): TreePage | undefined => last.get(lastKey(view, name))?.page,
        }))
      : [],
    combine,
  })
}

export function searchPage(
  view: TreeView,
  graph: string,
  filter: Filter,
  number: number,
): PageQuery<SearchPage> {
  const { run, rank, watchpoint, at } = view
  const query = {
    ...searchQuery(filter),
    rank,
    graph,
    watchpoint,
    offset: number * SEARCH_PAGE,
    limit: SEARCH_PAGE,
  }
  return {
    queryKey: keys.watchpoints(run, 'found', query, at),
    queryFn: ({ signal }) => get<SearchPage>(path(run, '/nodes'), query, signal),
    gcTime: IN_MEMORY_MS,
  }
}

export interface NodeSearch {
  total: number | undefined
  pages: ReadonlyMap<number, readonly FoundNode[]>
  /** All matches, if they are few enough for a tree and all loaded. */
  all: readonly FoundNode[] | null
  isStale: boolean
  error: Error | null
  retry: () => void
}

/** The matches of a filter: the first page, and the other pages that are needed. */
export function useNodeSearch(view: TreeView, graph: string, filter: Filter): NodeSearch {
  const enabled = isFiltering(filter)
  const requestedPages = useTreeState((tree) => tree.requestedPages)
  const first = useQuery({
    ...searchPage(view, graph, filter, 0),
    enabled,
    placeholderData: keepPreviousData,
  })
  const total = first.data?.total
  const numbers = useMemo(() => {
    if (total === undefined || total <= SEARCH_PAGE) return []
    const amount = Math.ceil(total / SEARCH_PAGE)
    const rest = Array.from({ length: amount - 1 }, (_, index) => index + 1)
    return total <= MOST_IN_TREE
      ? rest
      : rest.filter((number) => requestedPages.has(pageKey({ graph: '', scope: '', number })))
  }, [total, requestedPages])
  const combine = useCallback(
    (results: UseQueryResult<SearchPage>[]): ReadonlyMap<number, readonly FoundNode[]> =>
      new Map(
        results.flatMap((result, index) => {
          const number = numbers[index]
          return result.data && number !== undefined ? [[number, result.data.nodes] as const] : []
        }),
      ),
    [numbers],
  )
  const more = useQueries({
    queries: enabled ? numbers.map((number) => searchPage(view, graph, filter, number)) : [],
    combine,
  })
  return useMemo(() => {
    const pages = new Map(more)
    if (first.data) pages.set(0, first.data.nodes)
    const isWhole = total !== undefined && total <= MOST_IN_TREE && pages.size * SEARCH_PAGE >= total
    const all = isWhole ? [...pages.entries()].sort(([a], [b]) => a - b).flatMap(([, nodes]) => nodes) : null
    const { isPlaceholderData: isStale, error } = first
    return { total, pages, all, isStale, error, retry: () => void first.refetch() }
  }, [first, more, total])
}
