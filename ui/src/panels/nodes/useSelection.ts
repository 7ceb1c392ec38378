import { useQueryClient } from '@tanstack/react-query'
import { useCallback, useEffect } from 'react'
import { useNode, useSession } from '~/api/queries'
import type { GraphRecord } from '~/api/types'
import { useView } from '~/state/store'
import type { TreeView } from './pages'
import { openChain, reveal } from './reveal'
import { rowKey, type EntryRow } from './rows'
import type { Rows } from './useRows'
import { useTreeState } from './treeState'

/** The tree follows what is selected anywhere, and selects. */
export function useSelection(view: TreeView, { graphs, hasGraphRows, isFiltered }: Rows) {
  const client = useQueryClient()
  const node = useView((one) => one.node)
  const selectNode = useView((one) => one.selectNode)
  const { data: record } = useNode()
  const setTree = useTreeState((tree) => tree.set)
  const { run, rank } = view
  const only = graphs.length === 1 ? graphs[0]?.name : undefined
  const graph = node?.graph === '' ? (only ?? '') : (node?.graph ?? '')
  const selected = node?.rank === rank ? rowKey(graph, node.name, false) : ''

  // Of several graphs the one that ran last is open at first, or the one with most in it.
  const { data: session } = useSession()
  const lastRun = session?.ranks.find((one) => one.rank === rank)?.graph ?? ''
  const largest = graphs.reduce<GraphRecord | undefined>(
    (a, b) => (a && a.nodes >= b.nodes ? a : b),
    undefined,
  )
  const first = only ?? (graphs.some((one) => one.name === lastRun) ? lastRun : largest?.name)
  useEffect(() => {
    if (run === '' || first === undefined) return
    const { open } = useTreeState.getState()
    if (open.has(rowKey(first, '', true)) || (hasGraphRows && open.size > 0)) return
    // What cannot be read has a row that says why.
    openChain(client, view, first, '').catch(() => undefined)
  }, [client, view, run, hasGraphRows, first])

  const show = useCallback(() => {
    if (record) reveal(client, view, record).catch(() => undefined)
  }, [client, view, record])

  useEffect(() => {
    if (!record || record.name !== node?.name || record.rank !== rank) return
    const key = `${rank}\n${rowKey(record.graph, record.name, false)}`
    const tree = useTreeState.getState()
    if (isFiltered) {
      if (tree.revealed !== key) setTree({ target: selected, cursor: selected, revealed: '' })
    } else if (tree.revealed !== key) {
      setTree({ revealed: key })
      show()
    }
  }, [record, node, rank, selected, isFiltered, show, setTree])

  const select = useCallback(
    (row: EntryRow) => {
      // Its row is there already, unless it is one of those found.
      setTree({ revealed: isFiltered ? '' : `${row.rank}\n${row.key}` })
      selectNode({ rank: row.rank, graph: row.graph, name: row.entry.path })
    },
    [selectNode, setTree, isFiltered],
  )
  return { node, selected, select, show }
}
