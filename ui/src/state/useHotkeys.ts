import { useEffect } from 'react'
import { getHotkeyHandler } from '@mantine/hooks'
import { useOffered, type Action } from './actions'
import { tell } from './messages'

/** Run the offered actions by their shortcuts. */
export function useHotkeys(): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.isComposing || event.repeat) return
      const action = Object.values(useOffered.getState().actions).find((offered) => isMeant(offered, event))
      if (!action) return
      // Also if the action is unavailable: the browser's default, such as a menu, is never intended.
      event.preventDefault()
      if (action.disabled === undefined) action.run()
      else tell(action.disabled, 'info', 'cannot')
    }
    document.addEventListener('keydown', onKey)
    return () => document.removeEventListener('keydown', onKey)
  }, [])
}

function isMeant(action: Action, event: KeyboardEvent): boolean {
  if (action.keys === undefined || !isPressed(action.keys, event)) return false
  const isFree = /mod|F\d/.test(action.keys) || !isTyping(event.target)
  // An open dialog comes first.
  return (
    isFree && (action.isEverywhere === true || !document.querySelector('[role="dialog"][aria-modal="true"]'))
  )
}

function isPressed(keys: string, event: KeyboardEvent): boolean {
  let pressed = false
  getHotkeyHandler([[keys, () => (pressed = true), { preventDefault: false }]])(event)
  return pressed
}

function isTyping(target: EventTarget | null): boolean {
  // A radio button or checkbox keeps the focus after a click, and takes no letters.
  if (target instanceof HTMLInputElement && ['radio', 'checkbox'].includes(target.type)) return false
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName))
  )
}
