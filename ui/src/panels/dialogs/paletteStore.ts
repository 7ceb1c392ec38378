import { createSpotlight } from '@mantine/spotlight'

/** The open state of the command palette, and the functions to change it. */
export const [paletteStore, palette] = createSpotlight()

/** Select the first entry, so that Enter runs it: the list may arrive after the query was typed. */
export function chooseFirst(): void {
  const list = document.getElementById(paletteStore.getState().listId)
  list?.querySelector('[data-selected]')?.removeAttribute('data-selected')
  list?.querySelector('[data-action]')?.setAttribute('data-selected', 'true')
  paletteStore.updateState((state) => ({ ...state, selected: 0 }))
}
