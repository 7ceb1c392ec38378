import { useMemo } from 'react'
import type { GraphRecord } from '~/api/types'
import type { TreeLines } from '~/parts/treeLines'
import { useView } from '~/state/store'
import { isFiltering, type Filter } from './filter'
import { foundListRows, foundTreeRows } from './found'
import { FOUND_PAGE, useFound, useGraphs, usePages, type Found, type TreeView } from './pages'
import { treeRows, type Row } from './rows'
import { useTreeState } from './treeState'

export interface Rows {
  rows: TreeLines<Row>
  /** The graphs that are shown: the one that is chosen, or all. */
  graphs: readonly GraphRecord[]
  hasGraphRows: boolean
  isFiltered: boolean
  isTree: boolean
  found: Found
}

const NONE: readonly GraphRecord[] = []

/** What the tree shows: all of the graphs, or what the filters find of them. */
export function useRows(view: TreeView, filter: Filter): Rows {
  const graph = useView((one) => one.graph)
  const { data: all = NONE } = useGraphs()
  const open = useTreeState((tree) => tree.open)
  const closed = useTreeState((tree) => tree.closed)
  const isList = useTreeState((tree) => tree.isList)
  const graphs = useMemo(() => (graph === '' ? all : all.filter((one) => one.name === graph)), [all, graph])
  const hasGraphRows = graphs.length > 1
  const isFiltered = isFiltering(filter)
  const known = usePages(view, graphs, !isFiltered)
  const found = useFound(view, graph, filter)
  const isTree = !isFiltered || (!isList && found.all !== null)
  const { rank } = view
  const rows = useMemo(() => {
    if (!isFiltered) return treeRows({ rank, graphs, hasGraphRows, open, known })
    const { total = 0, pages, all: nodes, isStale } = found
    if (isTree && nodes !== null) return foundTreeRows({ rank, nodes, hasGraphRows, closed, isStale })
    return foundListRows(rank, total, pages, FOUND_PAGE, isStale)
  }, [isFiltered, isTree, rank, graphs, hasGraphRows, open, known, found, closed])
  return { rows, graphs, hasGraphRows, isFiltered, isTree, found }
}
