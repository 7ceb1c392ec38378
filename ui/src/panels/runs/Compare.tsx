import { ActionIcon, Tooltip } from '@mantine/core'
import { IconArrowsDiff } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { useView } from '~/state/store'
import { runsTexts } from './texts'

/** Show a run, and open the dialog to choose the run to compare with. */
export function compareRun(run: string): void {
  useView.getState().openRun(run)
  useView.getState().set({ dialog: 'compare' })
}

/** The button beside a run that compares it with another one. */
export function Compare(props: { name: string; compare: () => void; isBusy?: boolean; isOff?: boolean }) {
  const { t } = useTranslation(runsTexts)
  const label = t('compare', { name: props.name })
  return (
    <Tooltip label={label}>
      <ActionIcon
        size="sm"
        aria-label={label}
        loading={props.isBusy ?? false}
        disabled={props.isOff ?? false}
        data-testid="compare-run"
        onClick={(event) => {
          event.stopPropagation()
          props.compare()
        }}
      >
        <IconArrowsDiff size={14} />
      </ActionIcon>
    </Tooltip>
  )
}
