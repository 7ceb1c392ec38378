import { keepPreviousData, useQueries, useQuery, type UseQueryResult } from '@tanstack/react-query'
import { useCallback, useMemo } from 'react'
import { get, getText } from '~/api/client'
import { keys, path, useHits, useNode } from '~/api/queries'
import type { SearchPage, SourcePage } from '~/api/types'
import { stackText } from '~/panels/nodes/filter'
import { useView } from '~/state/store'
import { hitsByLine, originLines, type NodesOfLine } from './lines'

/** Files per request; further files are not listed. */
export const MOST_FILES = 1000
const MOST_NODES = 100
// Nodes with hits whose lines are marked: the server's limit.
const MOST_HITS = 1000

export function useSources(query: string) {
  const run = useView((view) => view.run)
  return useQuery({
    queryKey: keys.graphs(run, 'sources', query),
    queryFn: ({ signal }) => get<SourcePage>(path(run, '/sources'), { query, limit: MOST_FILES }, signal),
    enabled: run !== '',
    placeholderData: keepPreviousData,
  })
}

export function useSourceText(file: string) {
  const run = useView((view) => view.run)
  return useQuery({
    queryKey: keys.graphs(run, 'source', file),
    queryFn: ({ signal }) => getText(path(run, '/source'), { file }, signal),
    enabled: run !== '' && file !== '',
  })
}

/** The nodes of each open line. */
export function useNodesOfLines(names: readonly string[]): ReadonlyMap<string, NodesOfLine> {
  const run = useView((view) => view.run)
  const rank = useView((view) => view.rank)
  const graph = useView((view) => view.graph)
  const combine = useCallback(
    (results: UseQueryResult<SearchPage>[]): ReadonlyMap<string, NodesOfLine> =>
      new Map(
        results.flatMap(({ data, error }, index) => {
          const name = names[index]
          return name === undefined ? [] : [[name, { page: data, message: error?.message }] as const]
        }),
      ),
    [names],
  )
  return useQueries({
    queries: names.map((name) => {
      const query = { stack: stackText(name), rank, graph, limit: MOST_NODES }
      return {
        queryKey: keys.hits(run, 'nodes of a line', query),
        queryFn: ({ signal }: { signal: AbortSignal }) => get<SearchPage>(path(run, '/nodes'), query, signal),
      }
    }),
    combine,
  })
}

/** The marks of lines: hits, and the lines of the selected node. */
export function useMarks() {
  const rank = useView((view) => view.rank)
  const { data: hits } = useHits({ rank, limit: MOST_HITS })
  const { data: node } = useNode()
  const selected = useView((view) => view.node)
  return useMemo(() => {
    // While the node loads, `node` may be the previous one.
    const current = selected !== null && node?.name === selected.name ? node : undefined
    return { hits: hitsByLine(hits?.nodes ?? []), origins: originLines(current), node: current }
  }, [hits, node, selected])
}
