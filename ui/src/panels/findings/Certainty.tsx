import { Tooltip } from '@mantine/core'
import { IconAlertOctagon, IconAlertTriangle, IconHelpCircle } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import type { FindingRecord } from '~/api/types'
import classes from './findings.module.css'
import { findingsTexts } from './texts'

const ICONS = { certain: IconAlertOctagon, likely: IconAlertTriangle, possible: IconHelpCircle }

/** How certain a finding is; the tooltip says what that means. */
export function Certainty({ certainty }: Pick<FindingRecord, 'certainty'>) {
  const { t } = useTranslation(findingsTexts)
  const Icon = ICONS[certainty]
  return (
    <Tooltip label={t(`meaning.${certainty}`)}>
      <span className={classes['certainty']} data-certainty={certainty} data-testid="finding-certainty">
        <Icon size={14} aria-hidden />
        {t(`certainty.${certainty}`)}
      </span>
    </Tooltip>
  )
}
