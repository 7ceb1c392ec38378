import { useQueryClient } from '@tanstack/react-query'
import { useCallback, useEffect } from 'react'
import { useGraphs, useNode } from '~/api/queries'
import { useView } from '~/state/store'
import type { TreeView } from './pages'
import { openChain, recordKey, reveal } from './reveal'
import { graphOf, rowKey, type EntryRow } from './rows'
import type { Rows } from './useRows'
import { useTreeState } from './treeState'

/** Let the tree follow the selection, and select nodes by it. */
export function useSelection(view: TreeView, { graph, isFiltered }: Rows) {
  const client = useQueryClient()
  const node = useView((state) => state.node)
  const selectNode = useView((state) => state.selectNode)
  const { data: record } = useNode()
  const setTree = useTreeState((tree) => tree.set)
  const { run, rank } = view
  const isRead = record !== undefined && record.name === node?.name && record.rank === rank
  const selected = isRead
    ? recordKey(graph, record)
    : node?.rank === rank
      ? rowKey(graph, node.name, false)
      : ''

  const { data: graphs = [] } = useGraphs()
  const isThere = graphs.length > 0
  useEffect(() => {
    if (run === '' || !isThere || useTreeState.getState().open.has(rowKey(graph, '', true))) return
    // A scope that cannot be loaded has a row that says why.
    openChain(client, view, graph, '').catch(() => undefined)
  }, [client, view, run, graph, isThere])

  const show = useCallback(() => {
    if (record) reveal(client, view, graph, record).catch(() => undefined)
  }, [client, view, graph, record])

  useEffect(() => {
    if (!isRead) return
    const key = `${rank}\n${selected}`
    const tree = useTreeState.getState()
    if (isFiltered) {
      if (tree.revealed !== key) setTree({ target: selected, cursor: selected, revealed: '' })
    } else if (tree.revealed !== key) {
      setTree({ revealed: key })
      show()
    }
  }, [isRead, rank, selected, isFiltered, show, setTree])

  const select = useCallback(
    (row: EntryRow) => {
      // The row is already visible, unless it is in search results.
      setTree({ revealed: isFiltered ? '' : `${row.rank}\n${row.key}` })
      selectNode({ rank: row.rank, graph: graphOf(row.graph, row.entry), name: row.entry.path })
    },
    [selectNode, setTree, isFiltered],
  )
  return { node, selected, select, show }
}
