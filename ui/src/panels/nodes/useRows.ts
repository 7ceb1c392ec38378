import { useMemo } from 'react'
import type { TreeLines } from '~/parts/treeLines'
import { useView } from '~/state/store'
import { isFiltering, type Filter } from './filter'
import { foundListRows, foundTreeRows } from './found'
import { FOUND_PAGE, useFound, usePages, type Found, type TreeView } from './pages'
import { treeRows, type Row } from './rows'
import { useTreeState } from './treeState'

export interface Rows {
  rows: TreeLines<Row>
  /** The graph that is chosen; empty: all as one program. */
  graph: string
  isFiltered: boolean
  isTree: boolean
  found: Found
}

/** What the tree shows: the whole program or a graph of it, or what the filters find there. */
export function useRows(view: TreeView, filter: Filter): Rows {
  const graph = useView((one) => one.graph)
  const open = useTreeState((tree) => tree.open)
  const closed = useTreeState((tree) => tree.closed)
  const isList = useTreeState((tree) => tree.isList)
  const isFiltered = isFiltering(filter)
  const known = usePages(view, graph, !isFiltered)
  const found = useFound(view, graph, filter)
  const isTree = !isFiltered || (!isList && found.all !== null)
  const { rank } = view
  const rows = useMemo(() => {
    if (!isFiltered) return treeRows({ rank, graph, open, known })
    const { total = 0, pages, all: nodes, isStale } = found
    if (isTree && nodes !== null) return foundTreeRows({ rank, graph, nodes, closed, isStale })
    return foundListRows(rank, graph, total, pages, FOUND_PAGE, isStale)
  }, [isFiltered, isTree, rank, graph, open, known, found, closed])
  return { rows, graph, isFiltered, isTree, found }
}
