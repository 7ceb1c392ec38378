import { create } from 'zustand'
import { useView } from '~/state/store'

/** A node or scope that the next new watchpoint watches. */
export interface Wanted {
  path: string
  /** Empty: in all graphs. */
  graph: string
}

export const useWanted = create<{ wanted: Wanted | null }>()(() => ({ wanted: null }))

/** Open the dialog for a new watchpoint of one node, or of all nodes below a scope. */
export function watchNode(wanted: Wanted): void {
  useWanted.setState({ wanted })
  useView.getState().set({ dialog: 'watchpoint', edited: null })
}
