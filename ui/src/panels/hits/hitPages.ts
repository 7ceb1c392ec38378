import { keepPreviousData, useQueries, useQuery } from '@tanstack/react-query'
import { get } from '~/api/client'
import { keys, path, useIsSelected } from '~/api/queries'
import type { HitPage, NodeHits } from '~/api/types'
import { useView, type NodeChoice } from '~/state/store'

/** Nodes per request. */
export const PAGE = 50

export interface HitFilter {
  rank: number | null
  graph: string | null
  watchpoint: number | null
}

export const noFilter: HitFilter = { rank: null, graph: null, watchpoint: null }

function pageQuery(run: string, filter: HitFilter, page: number) {
  return {
    queryKey: keys.hits(run, 'rows', filter, page),
    queryFn: ({ signal }: { signal: AbortSignal }) =>
      get<HitPage>(path(run, '/hits'), { ...filter, offset: page * PAGE, limit: PAGE }, signal),
    enabled: run !== '',
    placeholderData: keepPreviousData,
  }
}

/** The first page, with the total number of nodes. */
export function useFirstHits(filter: HitFilter) {
  const run = useView((view) => view.run)
  return useQuery(pageQuery(run, filter, 0))
}

/** The nodes at some positions of the list, as far as they have been loaded. */
export function useHitsAt(filter: HitFilter, positions: readonly number[]): Map<number, NodeHits> {
  const run = useView((view) => view.run)
  const pages = [...new Set(positions.map((position) => Math.floor(position / PAGE)))]
  const read = useQueries({ queries: pages.map((page) => pageQuery(run, filter, page)) })
  const nodes = new Map<number, NodeHits>()
  for (const { data } of read)
    data?.nodes.forEach((node, position) => nodes.set(data.offset + position, node))
  return nodes
}

/** The position of the selected node in the list; null if it has no listed hits. */
export function usePositionOf(node: NodeChoice | null, filter: HitFilter): number | null {
  const run = useView((view) => view.run)
  const isSelected = useIsSelected()
  const { data } = useQuery({
    queryKey: keys.hits(run, 'place', filter, node),
    queryFn: ({ signal }) =>
      get<HitPage>(path(run, '/hits'), { ...filter, focus: node?.name, limit: PAGE }, signal),
    enabled: run !== '' && node !== null,
  })
  if (!data || !node) return null
  const named = data.nodes.findIndex((other) => other.node === node.name)
  const exact = data.nodes.findIndex(isSelected)
  // The same node of another rank may be on the next page.
  const position = exact >= 0 ? exact : named
  return position < 0 ? null : data.offset + position
}
