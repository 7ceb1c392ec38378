import { Tooltip } from '@mantine/core'
import {
  IconAlertTriangle,
  IconCircleCheck,
  IconCircleX,
  IconHourglassLow,
  IconPlayerPauseFilled,
  IconPlayerPlayFilled,
  IconPlayerStopFilled,
  IconPlugConnectedX,
  IconSend,
} from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import type { SessionState } from '~/api/types'
import classes from './StateBadge.module.css'
import { stateTexts } from './stateTexts'

const ICONS = {
  connecting: IconHourglassLow,
  paused: IconPlayerPauseFilled,
  sending: IconSend,
  running: IconPlayerPlayFilled,
  mismatch: IconAlertTriangle,
  finished: IconCircleCheck,
  terminated: IconPlayerStopFilled,
  lost: IconPlugConnectedX,
  failed: IconCircleX,
}

/** The state of a run: a word with an icon, and a sentence about it in the tooltip. */
export function StateBadge({ state, message = '' }: { state: SessionState; message?: string }) {
  const { t } = useTranslation(stateTexts)
  const Icon = ICONS[state]
  return (
    <Tooltip label={message || t(`about.${state}`)} multiline maw={360}>
      <span className={classes['badge']} data-state={state} data-testid="run-state">
        <Icon size={13} aria-hidden />
        {t(`word.${state}`)}
      </span>
    </Tooltip>
  )
}
