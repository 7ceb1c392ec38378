import { create } from 'zustand'

/**
 * Something the user can do from a button, with a shortcut or from the command palette. Panels offer their actions
 * while they are mounted (`useActions`), so that each action is written once.
 */
export interface Action {
  /** Unique, such as `run.continue`. */
  id: string
  /** In the user's language. */
  label: string
  /** In the syntax of Mantine's hotkeys: `F8`, `mod+K`, `shift+F10`. */
  keys?: string
  /** Why the action is unavailable; undefined if it is available. */
  disabled?: string | undefined
  run: () => void
  /** Heading in the palette. */
  group: string
  /** Whether its shortcut also works while a dialog is open. */
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
      actions: { ...state.actions, ...Object.fromEntries(actions.map((action) => [action.id, action])) },
    })),
  withdraw: (ids) =>
    set((state) => ({
      actions: Object.fromEntries(Object.entries(state.actions).filter(([id]) => !ids.includes(id))),
    })),
}))
