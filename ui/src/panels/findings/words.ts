import { useTranslation } from 'react-i18next'
import type { FindingRecord, Schemas } from '~/api/types'

/** Return the words of a finding in the language of the page. */
export function useFindingWords(): (finding: FindingRecord) => Schemas['FindingWords'] {
  const { i18n } = useTranslation()
  return (finding) => (i18n.language === 'zh' ? finding.chinese : finding)
}
