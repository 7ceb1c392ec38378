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
import type { FoundNode } from './found'
import { openScopes, PAGE, pageKey, type KnownPage, type PageName } from './rows'
import { useTreeState } from './treeState'

/** Nodes found that are read at once: as many as the server gives. */
export const FOUND_PAGE = 1000
/** Of more nodes than these no tree is made: it would have to read them all before its first row is right. */
export const MOST_FOUND_IN_TREE = 3000

// Pages as they last were. They stand in for those being read, so that a tick or a step does not empty the tree.
const last = new Map<string, { page: TreePage; watchpoint: number | null }>()
const IN_MEMORY_MS = 60_000

/** Whose rows are read, and with what on them. */
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

/** What the tree shows now. While a training runs, its steps are no reason to read; its hits are. */
export function useTreeView(): TreeView {
  const run = useView((view) => view.run)
  const rank = useView((view) => view.rank)
  const chosen = useView((view) => view.watchpoint)
  const { data: watchpoints } = useWatchpoints()
  const { data: session } = useSession()
  // One that was deleted meanwhile has no ticks to show.
  const watchpoint = watchpoints?.some((one) => one.id === chosen) ? chosen : null
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

/** All pages that the open scopes need. */
export function usePages(view: TreeView, graph: string, enabled: boolean) {
  const open = useTreeState((tree) => tree.open)
  const wanted = useTreeState((tree) => tree.wanted)
  const names = useMemo(() => {
    const scopes = openScopes(open, graph)
    const visible = new Set(scopes.map(pageKey))
    const more = [...wanted.values()].filter((page) => visible.has(pageKey({ ...page, number: 0 })))
    return [...new Map([...scopes, ...more].map((page) => [pageKey(page), page])).values()]
  }, [open, wanted, graph])
  const combine = useCallback(
    (results: UseQueryResult<TreePage>[]): ReadonlyMap<string, KnownPage> =>
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

export function foundPage(
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
    offset: number * FOUND_PAGE,
    limit: FOUND_PAGE,
  }
  return {
    queryKey: keys.watchpoints(run, 'found', query, at),
    queryFn: ({ signal }) => get<SearchPage>(path(run, '/nodes'), query, signal),
    gcTime: IN_MEMORY_MS,
  }
}

export interface Found {
  total: number | undefined
  pages: ReadonlyMap<number, readonly FoundNode[]>
  /** All of them, if they are few enough for a tree and all there. */
  all: readonly FoundNode[] | null
  isStale: boolean
  error: Error | null
  retry: () => void
}

/** What a filter finds: the first page, and those that are needed of the others. */
export function useFound(view: TreeView, graph: string, filter: Filter): Found {
  const enabled = isFiltering(filter)
  const wanted = useTreeState((tree) => tree.wanted)
  const first = useQuery({
    ...foundPage(view, graph, filter, 0),
    enabled,
    placeholderData: keepPreviousData,
  })
  const total = first.data?.total
  const numbers = useMemo(() => {
    if (total === undefined || total <= FOUND_PAGE) return []
    const amount = Math.ceil(total / FOUND_PAGE)
    const rest = Array.from({ length: amount - 1 }, (_, index) => index + 1)
    return total <= MOST_FOUND_IN_TREE
      ? rest
      : rest.filter((number) => wanted.has(pageKey({ graph: '', scope: '', number })))
  }, [total, wanted])
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
    queries: enabled ? numbers.map((number) => foundPage(view, graph, filter, number)) : [],
    combine,
  })
  return useMemo(() => {
    const pages = new Map(more)
    if (first.data) pages.set(0, first.data.nodes)
    const isWhole = total !== undefined && total <= MOST_FOUND_IN_TREE && pages.size * FOUND_PAGE >= total
    const all = isWhole ? [...pages.entries()].sort(([a], [b]) => a - b).flatMap(([, nodes]) => nodes) : null
    const { isPlaceholderData: isStale, error } = first
    return { total, pages, all, isStale, error, retry: () => void first.refetch() }
  }, [first, more, total])
}
