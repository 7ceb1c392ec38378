import { create } from 'zustand'
import { useView } from '~/state/store'

/** A node or scope that the next new watchpoint watches. */
export interface WatchTarget {
  path: string
  /** Empty: in all graphs. */
  graph: string
}

export const useWatchTarget = create<{ target: WatchTarget | null }>()(() => ({ target: null }))

/** Open the dialog for a new watchpoint of one node, or of all nodes below a scope. */
export function watchNode(target: WatchTarget): void {
  useWatchTarget.setState({ target })
  useView.getState().set({ dialog: 'watchpoint', edited: null })
}
