import { create } from 'zustand'
import type { SourceFile } from '~/api/types'
import { isFileOpen, lineName } from './lines'

/** The state of the list of lines. It is kept while another tab is shown, and reset for another run. */
interface Sources {
  run: string
  query: string
  /** The file whose text is shown; empty: the list. */
  file: string
  turned: ReadonlySet<string>
  openLines: ReadonlySet<string>
  cursor: string
  target: string
  scrollOffset: number
  /** A line that the user asked for, from 1, in `file` or in the list; 0 once a node is selected afterwards. */
  line: number
  /** Whether that line still has to be shown instead of the line of the selected node. */
  isHeld: boolean
  /** The line of the selected node to which the list has already scrolled. */
  shown: string
}

const fresh: Sources = {
  run: '',
  query: '',
  file: '',
  turned: new Set(),
  openLines: new Set(),
  cursor: '',
  target: '',
  scrollOffset: 0,
  line: 0,
  isHeld: false,
  shown: '',
}

interface SourcesActions {
  set: (change: Partial<Sources>) => void
  reset: (run: string) => void
  turnFile: (file: string) => void
  setLineOpen: (name: string, isOpen: boolean) => void
  /** Show a line: in the text of its file if that was sent, else in the list. */
  showLine: (run: string, file: SourceFile, line: number) => void
}

function withOrWithout(set: ReadonlySet<string>, key: string, isIn: boolean): ReadonlySet<string> {
  const next = new Set(set)
  if (isIn) next.add(key)
  else next.delete(key)
  return next
}

export const useSourcesState = create<Sources & SourcesActions>()((set) => ({
  ...fresh,
  set: (change) => set(change),
  reset: (run) => set({ ...fresh, run }),
  turnFile: (file) => set(({ turned }) => ({ turned: withOrWithout(turned, file, !turned.has(file)) })),
  setLineOpen: (name, isOpen) =>
    set(({ openLines }) => ({ openLines: withOrWithout(openLines, name, isOpen) })),
  showLine: (run, file, line) =>
    set((state) => {
      const name = lineName(file.file, line)
      const before = state.run === run ? state : { ...fresh, run }
      const turned = isFileOpen(file, before.turned, false)
        ? before.turned
        : withOrWithout(before.turned, file.file, !before.turned.has(file.file))
      const text = file.has_text ? file.file : ''
      return { ...before, turned, query: '', file: text, line, target: name, cursor: name, isHeld: true }
    }),
}))
