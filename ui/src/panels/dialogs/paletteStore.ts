import { createSpotlight } from '@mantine/spotlight'

/** Whether the command palette is open, and how to open it. */
export const [paletteStore, palette] = createSpotlight()

/** Choose the first entry, which Enter then takes: the list may come after what was typed. */
export function chooseFirst(): void {
  const list = document.getElementById(paletteStore.getState().listId)
  list?.querySelector('[data-selected]')?.removeAttribute('data-selected')
  list?.querySelector('[data-action]')?.setAttribute('data-selected', 'true')
  paletteStore.updateState((state) => ({ ...state, selected: 0 }))
}
