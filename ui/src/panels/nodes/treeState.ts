import { create } from 'zustand'
import { noNodeFilter, type NodeFilter } from './filter'
import { pageKey, type PageName } from './rows'

/** The state of the tree. It is kept while another tab is shown, and reset for another run. */
interface Tree {
  run: string
  /** Keys of the rows that are open. */
  open: ReadonlySet<string>
  /** Keys of the scopes that the user closed in search results. */
  closed: ReadonlySet<string>
  /** Pages that are needed besides the first page of each open scope. */
  requestedPages: ReadonlyMap<string, PageName>
  /** Key of the row that the keyboard acts on. */
  cursor: string
  /** Key of the row to scroll to as soon as it exists. */
  target: string
  scrollOffset: number
  filter: NodeFilter
  hasMoreFilters: boolean
  isList: boolean
  /** The selection already revealed in the tree: if the user closes its scopes, they stay closed. */
  revealed: string
}

interface TreeActions {
  set: (change: Partial<Tree>) => void
  reset: (run: string) => void
  setOpen: (keys: string[], isOpen: boolean) => void
  setClosed: (keys: string[], isClosed: boolean) => void
  requestPage: (page: PageName) => void
}

const fresh: Tree = {
  run: '',
  open: new Set(),
  closed: new Set(),
  requestedPages: new Map(),
  cursor: '',
  target: '',
  scrollOffset: 0,
  filter: noNodeFilter,
  hasMoreFilters: false,
  isList: false,
  revealed: '',
}

function changed(set: ReadonlySet<string>, keys: string[], isIn: boolean): ReadonlySet<string> {
  const next = new Set(set)
  for (const key of keys) {
    if (isIn) next.add(key)
    else next.delete(key)
  }
  return next
}

export const useTreeState = create<Tree & TreeActions>()((set) => ({
  ...fresh,
  set: (change) => set(change),
  reset: (run) =>
    set((tree) => ({ ...fresh, run, hasMoreFilters: tree.hasMoreFilters, isList: tree.isList })),
  setOpen: (keys, isOpen) => set((tree) => ({ open: changed(tree.open, keys, isOpen) })),
  setClosed: (keys, isClosed) => set((tree) => ({ closed: changed(tree.closed, keys, isClosed) })),
  requestPage: (page) =>
    set((tree) => {
      const key = pageKey(page)
      return tree.requestedPages.has(key)
        ? {}
        : { requestedPages: new Map(tree.requestedPages).set(key, page) }
    }),
}))
