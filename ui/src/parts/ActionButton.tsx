import { ActionIcon, Button, Tooltip } from '@mantine/core'
import type { ReactNode } from 'react'
import { useOffered } from '~/state/actions'
import { shortcutText } from './shortcutText'

/** A button for an action that some panel offers: its tooltip names it, its keys, and why it cannot be done now. */
export function ActionButton({
  id,
  icon,
  withLabel = false,
}: {
  id: string
  icon: ReactNode
  withLabel?: boolean
}) {
  const action = useOffered((offered) => offered.actions[id])
  if (!action) return null
  const keys = action.keys === undefined ? '' : ` (${shortcutText(action.keys)})`
  const common = {
    'aria-label': action.label,
    'data-testid': `action-${id.replaceAll('.', '-')}`,
    // Not `disabled`: a tooltip could not say why.
    'aria-disabled': action.disabled !== undefined,
    onClick: () => {
      if (action.disabled === undefined) action.run()
    },
    style: action.disabled === undefined ? undefined : { opacity: 0.45, cursor: 'not-allowed' },
  }
  return (
    <Tooltip label={action.disabled ?? `${action.label}${keys}`} multiline maw={320}>
      {withLabel ? (
        <Button variant="default" leftSection={icon} {...common}>
          {action.label}
        </Button>
      ) : (
        <ActionIcon {...common}>{icon}</ActionIcon>
      )}
    </Tooltip>
  )
}
