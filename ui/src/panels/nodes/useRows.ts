import { useMemo } from 'react'
import type { TreeLines } from '~/parts/treeLines'
import { useView } from '~/state/store'
import { isFiltering, type Filter } from './filter'
import { searchListRows, searchTreeRows } from './searchRows'
import { SEARCH_PAGE, useNodeSearch, usePages, type NodeSearch, type TreeView } from './pages'
import { treeRows, type Row } from './rows'
import { useTreeState } from './treeState'

export interface Rows {
  rows: TreeLines<Row>
  /** The chosen graph; empty: the whole program. */
  graph: string
  isFiltered: boolean
  isTree: boolean
  search: NodeSearch
}

/** The rows of the tree: of the whole program, of a graph, or of the nodes that match the filters. */
export function useRows(view: TreeView, filter: Filter): Rows {
  const graph = useView((state) => state.graph)
  const open = useTreeState((tree) => tree.open)
  const closed = useTreeState((tree) => tree.closed)
  const isList = useTreeState((tree) => tree.isList)
  const isFiltered = isFiltering(filter)
  const loadedPages = usePages(view, graph, !isFiltered)
  const search = useNodeSearch(view, graph, filter)
  const isTree = !isFiltered || (!isList && search.all !== null)
  const { rank } = view
  const rows = useMemo(() => {
    if (!isFiltered) return treeRows({ rank, graph, open, pages: loadedPages })
    const { total = 0, pages, all: nodes, isStale } = search
    if (isTree && nodes !== null) return searchTreeRows({ rank, graph, nodes, closed, isStale })
    return searchListRows(rank, graph, total, pages, SEARCH_PAGE, isStale)
  }, [isFiltered, isTree, rank, graph, open, loadedPages, search, closed])
  return { rows, graph, isFiltered, isTree, search }
}
