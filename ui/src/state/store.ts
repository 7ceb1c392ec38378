import { create } from 'zustand'
import type { TabId } from '~/panels/tabs'
import { parseAddress } from '~/parts/tensorAddress'

export type LeftTab = 'nodes' | 'hits' | 'sources'

/** A tab in the middle; the tab of a tensor is named by the tensor's address without a step. */
export type MainTab = TabId | `tensor:${string}`

/** The part of a comparison that the tab *Compare* shows. */
export type ComparePart = 'operators' | 'values' | 'given' | 'unmatched' | 'losses'

/** A node, wherever it was selected: tree, graph, table, hit list. */
export interface NodeChoice {
  rank: number
  graph: string
  name: string
}

/** What the page shows. All of it except the dialogs is in the address bar. */
export interface View {
  /** Id of the session; empty: the list of runs. */
  run: string
  /** Name of the search shown while no run is open; empty: the list of runs. */
  search: string
  rank: number
  /** Empty: all graphs, or the only one. */
  graph: string
  node: NodeChoice | null
  tab: MainTab
  /** Addresses of tensors that have a tab. */
  tensors: string[]
  left: LeftTab
  /** The watchpoint whose nodes are ticked in tree and graph. */
  watchpoint: number | null
  /** A stack line ("file:line") by which the tree is filtered. */
  stackFilter: string
  /** The run that this one is compared with: id of its session, or its name among the dumps; empty: none. */
  other: string
  /** Null: the part that tells most. */
  part: ComparePart | null
  dialog: 'none' | 'watchpoint' | 'shortcuts' | 'compare'
  /** The watchpoint that the dialog edits; null: it creates a new one. */
  edited: number | null
  /** The step named by the link that was opened, until the run shows it or moves to another. */
  linkedStep: number | null
}

export interface Actions {
  set: (change: Partial<View>) => void
  openRun: (run: string) => void
  openSearch: (search: string) => void
  selectNode: (node: NodeChoice | null, tab?: MainTab) => void
  openTensor: (address: string) => void
  closeTensor: (address: string) => void
}

export const emptyView: View = {
  run: '',
  search: '',
  rank: 0,
  graph: '',
  node: null,
  tab: 'overview',
  tensors: [],
  left: 'nodes',
  watchpoint: null,
  stackFilter: '',
  other: '',
  part: null,
  dialog: 'none',
  edited: null,
  linkedStep: null,
}

/** Return the address of a tensor without its step: it names the tensor at the step shown. */
export function withoutStep(address: string): string {
  return address.replace(/@\d+$/, '')
}

/** Return the node that a tensor belongs to; null if the address is invalid. */
export function nodeOfTensor(address: string): NodeChoice | null {
  const parts = parseAddress(address)
  return parts && { rank: parts.rank, graph: parts.graph, name: parts.node }
}

export const useView = create<View & Actions>()((set) => ({
  ...emptyView,
  set: (change) => set(change),
  openRun: (run) => set({ ...emptyView, run }),
  openSearch: (search) => set({ ...emptyView, search }),
  selectNode: (node, tab) =>
    set(node === null ? { node } : { node, rank: node.rank, ...(tab === undefined ? {} : { tab }) }),
  openTensor: (address) =>
    set((view) => {
      const tensor = withoutStep(address)
      const tensors = view.tensors.includes(tensor) ? view.tensors : [...view.tensors, tensor].slice(-8)
      return { tensors, tab: `tensor:${tensor}`, node: nodeOfTensor(tensor) ?? view.node }
    }),
  closeTensor: (address) =>
    set((view) => {
      const index = view.tensors.indexOf(address)
      const tensors = view.tensors.filter((tensor) => tensor !== address)
      const next = tensors[Math.min(index, tensors.length - 1)]
      const isOpen = view.tab === `tensor:${address}`
      return {
        tensors,
        ...(isOpen ? { tab: next === undefined ? 'graph' : (`tensor:${next}` as const) } : {}),
      }
    }),
}))
