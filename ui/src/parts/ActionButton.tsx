import { ActionIcon, Button, Tooltip } from '@mantine/core'
import type { ReactNode } from 'react'
import { useOffered } from '~/state/actions'
import { shortcutText } from './shortcutText'

/** A button for an offered action; its tooltip shows the name, the shortcut, and why the action is unavailable. */
export function ActionButton({
  id,
  icon,
  withLabel = false,
  isPrimary = false,
  colour,
}: {
  id: string
  icon: ReactNode
  withLabel?: boolean
  /** The action that the user most likely wants next. */
  isPrimary?: boolean
  /** Colour of the icon while the action is available. */
  colour?: string
}) {
  const action = useOffered((offered) => offered.actions[id])
  if (!action) return null
  const isOff = action.disabled !== undefined
  const name = action.keys === undefined ? action.label : `${action.label} (${shortcutText(action.keys)})`
  const common = {
    'aria-label': action.label,
    'data-testid': `action-${id.replaceAll('.', '-')}`,
    // Not `disabled`: the tooltip would not open, and the keyboard could not reach the button.
    'aria-disabled': isOff,
    onClick: () => {
      if (!isOff) action.run()
    },
    ...(isOff ? { style: { opacity: 0.45, cursor: 'not-allowed' } } : {}),
    ...(colour === undefined || isOff ? {} : { c: colour }),
  }
  return (
    <Tooltip
      multiline
      maw={340}
      label={
        isOff ? (
          <>
            {name}
            <br />
            {action.disabled}
          </>
        ) : (
          name
        )
      }
    >
      {withLabel ? (
        <Button variant={isPrimary ? 'filled' : 'default'} leftSection={icon} {...common}>
          {action.label}
        </Button>
      ) : (
        <ActionIcon {...common}>{icon}</ActionIcon>
      )}
    </Tooltip>
  )
}
