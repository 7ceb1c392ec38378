import { create } from 'zustand'

/**
 * Something a person can do, from a button, with keys or from the command palette. Panels offer theirs while they are
 * there (`useActions`), so that each action is written once.
 */
export interface Action {
  /** Unique, such as `run.continue`. */
  id: string
  /** Already in the person's language. */
  label: string
  /** In the form of Mantine's hotkeys: `F8`, `mod+K`, `shift+F10`. */
  keys?: string
  /** Why it cannot be done now; undefined when it can. */
  disabled?: string | undefined
  run: () => void
  /** Heading in the palette. */
  group: string
  /** Its keys work while a dialog is open, too. */
  isEverywhere?: boolean
}

interface Offered {
  actions: Record<string, Action>
  offer: (actions: Action[]) => void
  withdraw: (ids: string[]) => void
}

export const useOffered = create<Offered>()((set) => ({
  actions: {},
  offer: (actions) =>
    set((state) => ({
      actions: { ...state.actions, ...Object.fromEntries(actions.map((one) => [one.id, one])) },
    })),
  withdraw: (ids) =>
    set((state) => ({
      actions: Object.fromEntries(Object.entries(state.actions).filter(([id]) => !ids.includes(id))),
    })),
}))
