import { create } from 'zustand'
import { parseAddress } from '~/parts/tensorAddress'
import { useView } from '~/state/store'

interface Trail {
  at: string
  past: string[]
  future: string[]
}

/** The history of the walk from tensor to tensor; it outlives the tab, which is replaced with each move. */
export const useTrail = create<Trail>()(() => ({ at: '', past: [], future: [] }))

/** Start a new trail if a tensor was opened in another way. */
export function beginTrail(address: string): void {
  if (useTrail.getState().at !== address) useTrail.setState({ at: address, past: [], future: [] })
}

export function walkTo(address: string): void {
  const { at, past } = useTrail.getState()
  if (address === at) return
  useTrail.setState({ at: address, past: [...past, at], future: [] })
  show(at, address)
}

export function walkBack(): void {
  const { at, past, future } = useTrail.getState()
  const before = past.at(-1)
  if (before === undefined) return
  useTrail.setState({ at: before, past: past.slice(0, -1), future: [at, ...future] })
  show(at, before)
}

export function walkForward(): void {
  const { at, past, future } = useTrail.getState()
  const [next] = future
  if (next === undefined) return
  useTrail.setState({ at: next, past: [...past, at], future: future.slice(1) })
  show(at, next)
}

/** Show a tensor in the tab of another, and select its node. */
function show(from: string, to: string): void {
  const { tensors, set, selectNode } = useView.getState()
  const replaced = tensors.includes(from)
    ? tensors.map((address) => (address === from ? to : address))
    : [...tensors, to]
  set({ tensors: [...new Set(replaced)], tab: `tensor:${to}` })
  const parts = parseAddress(to)
  if (parts) selectNode({ rank: parts.rank, graph: parts.graph, name: parts.node })
}
